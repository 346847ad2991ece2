#!/usr/bin/env python3
"""jinja_corpus.py OUT.json: what Python's jinja2 makes of the templates below, in the setting of Hugging Face transformers. The
result is committed as tests/data/jinja/features.json, so that the tests need no Python package. Needs jinja2 3.1."""

import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2024, 7, 26, 15, 4, 5)


class Raised(Exception):
    """What raise_exception() raises: told from the errors of jinja2 itself."""


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise Raised(str(message))

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(env, template, variables):
    """{"out": text}, {"raises": message} or {"error": what Python said}."""
    try:
        return {"out": env.from_string(template).render(**variables)}
    except Raised as e:
        return {"raises": str(e)}
    except Exception as e:  # pylint: disable=broad-exception-caught
        return {"error": f"{type(e).__name__}: {e}"[:200]}


VARS = {
    "s": "Hello World", "e": "", "u": "Grüße, 世界 🌍 ǅ ﬁn", "w": "  \t padded \n", "html": "<a href='x'>\"&\"</a>",
    "lines": "one\ntwo\r\nthree\n\nfive", "csv": "a,b,,c", "n": 7, "z": 0, "neg": -7, "f": 2.5, "big": 12345678901234567890,
    "t": True, "no": False, "nil": None, "l": [3, 1, 2], "words": ["b", "A", "c", "B"], "nested": [[1, 2], ["x"], []],
    "d": {"b": 1, "a": "two", "C": None, "items": "key", "nested": {"k": [1, {"z": 2.0}]}}, "empty": {}, "el": [],
    "users": [{"name": "Zoe", "age": 30, "tags": ["x"]}, {"name": "adam", "age": 25}, {"name": "Bob", "age": 30, "tags": []}],
    "floats": [1.0, 0.1, 1e16, 1e22, 1e-5, 123456789.123456789, -0.0, 5e-324, 1.7976931348623157e308, 100000.0, 1e15, 0.0001],
    "mixed": [1, "a", None, True, 2.5, [1], {"k": "v"}], "quote": "it's", "quotes": "both ' and \"", "ctl": "\x00\x01\x1f\x7f\u2028\u200b",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi!"},
                 {"role": "assistant", "content": "Hello.", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}],
}

# Expressions, each printed alone.
EXPRESSIONS = r"""
1 + 2
7 // 2
-7 // 2
-7 % 3
7 % -3
7 / 2
6 / 2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
7.5 // 2
-7.5 // 2
7.5 % 2
-7.5 % 2
1e3
1_000 + 0x1f + 0b101 + 0o17
1.5e-7
0.1 + 0.2
1 / 3
10 ** 15 * 1.0
10 ** 16 * 1.0
big
-big
big == 12345678901234567890
big > n
n < 8 < 9
1 < 2 > 3
1 == 1.0
true == 1
true + true
not true
not (n and z)
n and z
n or z
z or e or nil or 'last'
'' or 'x'
nil is none and not t
'a' < 'b'
'Z' < 'a'
[1, 2] < [1, 3]
[1, 2] == [1, 2]
(1, 2) == (1, 2)
[1] == (1,)
{'a': 1} == {'a': 1.0}
'ell' in s
'x' in e
3 in l
4 not in l
'b' in d
'x' in d
n in (1, 7)
nil in [none]
'x' in missing
missing == missing
missing == none
missing is defined
missing is undefined
missing ~ 'x'
missing + 'x'
missing.x
missing['x']
missing | length
missing | default('d')
missing | default
nil | default('d')
nil | default('d', true)
e | default('d', boolean=true)
missing.x | default('d')
d.missing | default('d')
d.missing.x
d.missing is defined
d['missing'] is defined
nil.x
nil.x is defined
nil['x'] is defined
n.x is defined
s.x is defined
none ~ 'x'
none + 'x'
'x' + none
'a' + 1
'a' ~ 1 ~ 2.0 ~ none ~ true
'a' * 3
3 * 'ab'
'a' * -1
[1, 2] * 2
[1] + [2]
(1,) + (2,)
[1] + (2,)
1 + 'a'
1 - 'a'
-s
+n
-t
~n
s[0]
s[-1]
s[100]
s[100] is defined
s[1:3]
s[:-1]
s[::-1]
s[::2]
s[10:2:-3]
s[-3:]
s[5:1]
u[7:9]
u[::-1]
u[1]
u | length
l[1:]
l[::-1]
l[5:]
l[-2:]
l[0:10:2]
l[::0]
l['a'] is defined
l[1.0] is defined
l[true]
'abc'['upper']()
d.a
d['a']
d.items
d['items']
d.nested.k[1].z
d.nested['k'][-1]['z']
d.get('a')
d.get('q')
d.get('q', 'dflt')
d.keys()
d.values()
d.items()
d.keys() | list
d.items() | list
d.values() | list | length
d.pop
d.pop('a')
d.update({'x': 1})
l.append(4)
l.index(2)
l.index(9)
l.count(1)
d._x
s.__class__
s.__class__.__mro__
s.upper()
s.lower()
s.title()
s.capitalize()
s.swapcase()
u.upper()
u.lower()
u.title()
u.capitalize()
u.swapcase()
u.casefold()
'ΑΣ ΑΣΑ Σ'.lower()
'straße'.upper()
'they\'re bill\'s'.title()
s.split()
s.split('o')
s.split('o', 1)
s.split(maxsplit=1)
s.rsplit('o', 1)
w.split()
w.strip()
w.lstrip()
w.rstrip()
'xxabcxx'.strip('x')
'xyabcyx'.strip('yx')
'éaé'.strip('é')
csv.split(',')
csv.split(',', 2)
csv.rsplit(',', 2)
' a  b  c '.split(None, 1)
' a  b  c '.rsplit(None, 1)
e.split()
e.split(',')
s.split('')
lines.splitlines()
lines.splitlines(true)
s.partition('o')
s.rpartition('o')
s.partition('q')
s.rpartition('q')
s.startswith('He')
s.startswith(('x', 'He'))
s.endswith('ld')
s.endswith('x')
s.startswith('o', 4)
s.find('o')
s.find('o', 5)
s.find('q')
s.rfind('o')
s.index('q')
s.count('o')
s.count('')
u.find('世')
s.replace('o', '0')
s.replace('o', '0', 1)
s.replace('', '-')
'aaa'.replace('aa', 'b')
s.removeprefix('Hello ')
s.removesuffix('World')
s.center(15, '*')
s.center(16)
s.ljust(13, '.')
s.rjust(13)
'42'.zfill(5)
'-42'.zfill(5)
','.join(['a', 'b'])
','.join([1])
', '.join(d)
'123'.isdigit()
'12a'.isdigit()
'٣'.isdigit()
'²'.isdigit()
'²'.isdecimal()
'abc'.isalpha()
'abc1'.isalnum()
'  '.isspace()
'abc'.islower()
'ABC1'.isupper()
'Abc Def'.istitle()
'a1'.isascii()
e.isalpha()
'{} {}'.format(1, 'a')
'{1} {0}'.format(1, 'a')
'{x} {y[0]} {z.a}'.format(x=1, y=[2], z={'a': 3})
'{:>8}|{:<8}|{:^8}|'.format('a', 'b', 'c')
'{:*^9}'.format('mid')
'{:05d} {:+d} {:x} {:#x} {:b} {:,}'.format(42, 7, 255, 255, 5, 1234567)
'{:.2f} {:e} {:g} {:%}'.format(3.14159, 12345.678, 0.0001, 0.25)
'{:8.3f}|{:<8.1f}|{:08.2f}'.format(3.14159, 2.5, -1.5)
'{!r} {!s}'.format('a', 'b')
'{{}} {}'.format(1)
'{:{}}'.format('a', 5)
'{'.format(1)
'{} {1}'.format(1, 2)
'{2}'.format(1)
'{0.upper}'.format('a') is string
'%s is %d years, %.1f%%' % ('Bob', 30, 99.5)
'%5s|%-5s|%05d|%x|%X|%o' % ('a', 'b', 42, 255, 255, 8)
'%(a)s and %(b)r' % {'a': 1, 'b': 'x'}
'%s' % nil
'%s' % missing
'%s' % ([1, 2],)
'%d' % 3.7
'%d' % 'x'
'%s %s' % ('a',)
'%s' % ('a', 'b')
'%c%c' % (65, 'b')
'%r' % 'it\'s'
'%+d % d' % (5, 5)
'%e %g %G' % (12345.678, 1e-10, 1e20)
'%%'  % ()
'%5.1f|' % 2.25
'%*d' % (5, 42)
s | upper
s | lower
s | title
'hello-world (foo) [bar] it\'s' | title
s | capitalize
w | trim
'xxaxx' | trim('x')
n | trim
s | replace('l', 'L')
s | replace('l', 'L', 1)
n | replace('7', '8')
s | reverse
l | reverse | list
s | length
l | length
d | length
n | length
nil | length
range(3) | length
s | list
d | list
n | list
l | first
el | first
el | first is defined
l | last
s | first
s | last
d | first
d | last
l | map('string') | last
l | join
l | join(', ')
words | join('-')
users | join(', ', attribute='name')
mixed | join('|')
n | join
d | join(',')
l | sort
l | sort(reverse=true)
words | sort
words | sort(case_sensitive=true)
words | sort(true)
users | sort(attribute='age') | map(attribute='name') | list
users | sort(attribute='age,name') | map(attribute='name') | list
users | sort(attribute='name', reverse=true) | map(attribute='name') | list
mixed | sort
[none, none] | sort
users | sort(attribute='tags')
d | dictsort
d | dictsort(true)
d | dictsort(by='value')
{'x': 2, 'y': 1} | dictsort(false, 'value')
{'x': 2, 'y': 1} | dictsort(reverse=true)
l | dictsort
words | unique | list
[1, 1.0, true, 2] | unique | list
users | unique(attribute='age') | map(attribute='name') | list
[[1]] | unique | list
l | min
l | max
el | min
words | min
words | max
users | max(attribute='age')
l | sum
users | sum(attribute='age')
el | sum
[0.1] * 3 | sum
([[1], [2]]) | sum(start=[])
words | sum
l | batch(2) | list
l | batch(2, 'x') | list
l | slice(2) | list
l | slice(2, 'x') | list
range(10) | slice(3) | list
users | map(attribute='name') | list
users | map(attribute='tags') | list
users | map(attribute='tags', default='none') | list
users | map(attribute='tags.0') | list
words | map('upper') | list
words | map('replace', 'b', 'x') | list
l | map('nofilter') | list
users | selectattr('tags') | map(attribute='name') | list
users | selectattr('age', 'eq', 30) | map(attribute='name') | list
users | selectattr('age', '>', 26) | list | length
users | selectattr('tags', 'defined') | list | length
users | rejectattr('age', 'equalto', 30) | map(attribute='name') | list
l | select('odd') | list
l | reject('odd') | list
mixed | select | list
mixed | select('string') | list
mixed | reject('none') | list
l | select('divisibleby', 2) | list
l | select('in', [1, 2]) | list
l | select('notest') | list
missing | select | list
missing | map('upper') | list
missing | list
missing | join
missing | items | list
d | items | list
l | items | list
users | groupby('age')
users | groupby('age') | map('first') | list
(users | groupby('age'))[0].grouper
(users | groupby('age'))[1].list | length
words | groupby(0)
'42' | int
'42.7' | int
'x' | int
'x' | int(5)
'0x1f' | int(base=16)
'0x1f' | int
'1f' | int(0, 16)
' 42 ' | int
'1_000' | int
42.9 | int
-42.9 | int
nil | int
missing | int
'123456789012345678901234567890' | int
1e20 | int
'3.5' | float
'x' | float
'x' | float(1.5)
'1e400' | float
'nan' | float
'inf' | float
n | float
2.5 | round
3.5 | round
2.675 | round(2)
2.5 | round(0, 'ceil')
2.5 | round(0, 'floor')
42.55 | round(1, 'floor')
n | round
1234.5 | round(-2)
1234 | round(-2)
2.5 | round | int
n | abs
-2.5 | abs
'x' | abs
s | string
n | string
f | string
floats | string
mixed | string
nil | string
t | string
missing | string
d | string
(1,) | string
() | string
[quote, quotes, e]
ctl | string
[ctl]
[u]
[html | safe]
html | escape
html | e
html | safe
html | safe | e
(html | safe) + '<b>'
'<b>' + (html | safe)
'<b>' ~ (html | safe)
(html | safe) | upper
'<i>' ~ ('a' | safe)
('%s' | safe) % '<b>'
('{}' | safe).format('<b>')
('a' | safe).join(['<', '>'])
('a<b' | safe).replace('<', '<')
html | forceescape
s | indent
lines | indent
lines | indent(2)
lines | indent(2, true)
lines | indent(2, first=true, blank=true)
lines | indent('> ')
'a\n' | indent(2)
'a\n\nb' | indent(2, false, true)
n | indent
s | wordcount
s | center(20)
'foo bar baz qux' | truncate(9)
'foo bar baz qux' | truncate(9, true)
'foo bar baz qux' | truncate(11)
'foo bar baz qux' | truncate(11, false, '...', 0)
s | truncate(5, true, '…')
'%s-%s' | format('a', 1)
'%(x)s' | format(x=5)
'a b&c/d' | urlencode
{'a b': 'c&d', 'e': 1} | urlencode
d | attr('a') is defined
s | attr('upper') is callable
d | tojson
d | tojson(indent=2)
d | tojson(indent=0)
nested | tojson(indent=1)
el | tojson(indent=2)
empty | tojson(indent=4)
d | tojson(sort_keys=true)
d | tojson(separators=(',', ':'))
d | tojson(indent=2, separators=(',', ': '))
u | tojson
u | tojson(ensure_ascii=true)
d | tojson(false, 2)
ctl | tojson
ctl | tojson(ensure_ascii=true)
html | tojson
'a/b\\c"d' | tojson
floats | tojson
big | tojson
[1, 1.0, true, none, 'x', (1, 2)] | tojson
{1: 2, 1.5: 3, none: 4, true: 5} | tojson
'nan' | float | tojson
missing | tojson
range(3) | tojson
d.items() | tojson
{(1, 2): 3} | tojson
s | tojson | safe
users | tojson(indent='\t')
s is string
n is string
d is mapping
l is mapping
missing is mapping
missing is none
l is sequence
d is sequence
s is sequence
missing is sequence
n is sequence
range(3) is sequence
d.items() is sequence
(l | map('string')) is sequence
l is iterable
s is iterable
d is iterable
missing is iterable
n is iterable
nil is iterable
d.items() is iterable
(l | map('string')) is iterable
n is number
t is number
f is number
n is integer
t is integer
f is integer
f is float
n is float
t is boolean
n is boolean
t is true
n is true
no is false
z is false
nil is none
nil is not none
n is odd
n is even
n is divisibleby 7
n is divisibleby(2)
n is eq 7
n is equalto 7
n is ne 7
n is gt 6
n is lt 6
n is ge(7)
n is le 7
n is greaterthan 3
n is lessthan 3
n is in [1, 7]
3 is in l
'lower' is lower
s is upper
'ABC' is upper
n is sameas 7
t is sameas true
nil is sameas none
s is callable
range is callable
missing is callable
namespace() is callable
html | safe is escaped
html is escaped
'upper' is filter
'nofilter' is filter
'odd' is test
n is notest
n is not odd
n is not divisibleby 7
s is odd
'yes' if n else 'no'
'yes' if z else 'no'
'yes' if z
('yes' if z) is defined
'a' if z else 'b' if z else 'c'
n if n is defined else 'x'
range(5) | list
range(1, 5) | list
range(5, 0, -2) | list
range(0)
range(3)
range(1, 10, 3)
range(5)[-1]
range(5)[1:3]
range(100001)
range(1, 2, 0)
range('a')
3 in range(5)
dict(a=1, b=2)
dict({'x': 1}, y=2)
dict([('a', 1), ('b', 2)])
dict(l)
namespace(a=1)
namespace(a=1).a
namespace(a=1).b is defined
namespace({'q': 5}).q
namespace(a=1)['a']
namespace(_a=1)._a
[1, 2, 3,]
(1, 2, 3)
(1,)
()
1, 2
{'a': 1, 'b': [1, 2,], }
{'a': 1}['a']
{1: 'x'}[1]
{1: 'x'}[1.0]
{1: 'x'}[true]
{[1]: 2}
'a' 'b' "c"
'line\nbreak\ttab \\ \' \" \x41 \u00e9 \U0001F600 \101 \q'
"it's"
'\u4e16\u754c' | length
strftime_now('%Y-%m-%d %H:%M:%S')
strftime_now('%d %b %Y')
strftime_now('%A %B %-d %j %y %p %I %% %e|%U %W %V %G %u %w %C|%D %T %R %F|%c|%x|%X|%h|%Q')
raise_exception('bad input')
raise_exception('bad ' ~ n)
raise_exception(missing)
cycler('a', 'b').next()
joiner()()
joiner(', ')() ~ 'x'
nosuchfunction()
s()
s.nosuch()
l.0
nested.0.1
users.0.name
nested[0, 1] is defined
1.5.x is defined
n . x is defined
s.upper().lower().title()
(s)[0]
(l | sort)[0]
-1 | abs
-l[0]
not n is odd
not n in l
n == 7 and s == 'Hello World' or false
2 + 3 * 4 - 1
(2 + 3) * 4
1 + 2 ~ 3 + 4
2 * 3 ~ 4
'a' ~ 1 + 2
10 - 5 - 2
100 / 10 / 2
2 ** 3 % 5
1 < 2 == true
l == [3, 1, 2] and l is sequence
'%s' % 'a' + 'b'
'a' in 'abc' == true
none is none is none
dict(**{'a': 1})
dict(*[[('a', 1)]])
'{}{}'.format(*[1, 2])
'{a}'.format(**{'a': 1})
s.replace(old='l', new='L')
9223372036854775807
9223372036854775807 - 1
-9223372036854775807 - 1
9223372036854775808
0.1 + 0.7
1e100
123456789012345680.0
1.0 * 3
3 * 1.1
7 == 7.0
0.5 == 1 / 2
[1.0, 2.50, 1e10, 1e17, -1.5e-10]
{'f': 1.0}
'abc' < 1
[] < none
none < 1
missing < 1
1 / 0
1 // 0
1 % 0
1.0 / 0
0 ** -1
'a' - 'b'
l - l
{} + {}
"" is defined
true, false, none
True, False, None
s | upper | lower | title | length | string
s|length>5
s|length > 5 and s|lower == 'hello world'
{'a': s|upper}['a']
[s|upper, s|lower][1]
'x' if s|length > 100 else 'y'
s.split(sep='o', maxsplit=1)
d.get(key='a')
l.index(value=1)
s.islower
""" # noqa

# Whole templates.
TEMPLATES = [
    # whitespace
    "", "\n", "a\n", "a\n\n", "  a  ", "a\r\nb\rc\n", "{{ 1 }}\n", "{{ 1 }}\n\n", "\n{{ 1 }}\n",
    "  {% if true %}\n  x\n  {% endif %}\n", "a {% if true %} b {% endif %} c", "a\n  {% if true %}  \nb\n  {% endif %}\nc",
    "a\n  {%- if true %}\n  b\n  {%- endif %}\nc", "a\n  {% if true -%}\n  b\n  {% endif -%}\nc", "a\n  {%+ if true %}\n  b\n  {%+ endif %}\nc",
    "a\n  {% if true +%}\n  b\n  {% endif +%}\nc", "  {{ 1 }}  \n  {{- 2 -}}  \n  3", "{{- 1 -}}", " \n {{- 1 -}} \n ", "x  {#- c -#}  y",
    "x\n  {# c #}\ny", "x\n  {# c #}  \ny", "x {# c #}\ny", "x\n{#\n multi\n line\n#}\ny", "{#+ a +#}\nb", "{##}x", "{#-#}x", "a{#- - -#} b",
    "{% raw %}{{ x }} {% y %}{% endraw %}", "  {% raw %}\n  {{ x }}\n  {% endraw %}\nz", "a {%- raw -%} {{ }} {%- endraw -%} b", "{% raw %}{% endraw %}",
    "{% raw %}\n  {% endraw %}\nx", "{%   raw   %}a{%  endraw %}", "{% raw -%}\n\n a {%- endraw +%}\nb", "{%raw%}{#{%endraw%}",
    "\t{% set x = 1 %}\n\t{{ x }}", "a\u00a0{%- if true %}\u2003x{% endif %}", "{% if true %}\n\n\nx{% endif %}", "{% if true %}x\n{% endif %}\n\ny",
    "a\n\n   {% set x = 1 %}   \n\nb", "{% set x = 1 %}{% set y = 2 %}\n{{ x }}{{ y }}", "{{ 'a\nb' }}", "{{ 'a\r\nb' }}", "{{\n1\n}}", "{%\nif\ntrue\n%}x{%\nendif\n%}",
    "{{ '}}' }}", "{{ '%}' }}{% set x = '%}' %}{{ x }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}['a']['b']}}", "{{'{{'}}", "{ {", "{", "{{ 1 }", "}}", "%}", "{% if x",
    "{{ (1, }}", "{{ [1 }}", "{{ 1) }}", "{{ 'abc }}", "{# open", "{% raw %} open", "{{ }}", "{% %}", "{{ 1 2 }}", "{{ a b }}", "{{ $ }}", "{{ 1 ? 2 }}", "{{ @x }}",
    # if
    "{% if n %}a{% elif z %}b{% else %}c{% endif %}", "{% if z %}a{% elif n %}b{% else %}c{% endif %}", "{% if z %}a{% elif no %}b{% else %}c{% endif %}",
    "{% if n and z or t %}x{% endif %}", "{% if n: %}x{% endif %}", "{% if %}x{% endif %}", "{% if n %}x", "{% endif %}", "{% else %}", "{% if n %}{% endfor %}",
    "{% if 1, 2 %}x{% endif %}", "{% if not missing %}x{% endif %}", "{% if el or empty or e %}x{% else %}y{% endif %}",
    # for
    "{% for x in l %}{{ x }},{% endfor %}", "{% for x in el %}{{ x }}{% else %}none{% endfor %}", "{% for x in missing %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in n %}{% endfor %}", "{% for x in nil %}{% endfor %}", "{% for k in d %}{{ k }} {% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}", "{% for c in 'aü世' %}{{ c }}.{% endfor %}",
    "{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }} {% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in ['xy'] %}{{ b }}{{ a }}{% endfor %}",
    "{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{{ loop.last }} {% endfor %}", "{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in range(5) if x is odd %}{{ loop.index }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for x in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}|{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}", "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in l %}{{ loop.nosuch is defined }}{% endfor %}", "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in l | map('string') %}{{ x }}{{ loop.length }}{{ loop.revindex }}{% endfor %}", "{% for x in range(6) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% break %}{% else %}E{% endfor %}", "{% for x in l %}{% continue %}{% else %}E{% endfor %}", "{% for x in l %}{{ x }}{% break %}{% endfor %}", "{% break %}", "{% if 1 %}{% continue %}{% endif %}",
    "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for x in l %}{% set a %}{{ x }}{% if x == 1 %}{% break %}{% endif %}{% endset %}{{ a }}{% endfor %}",
    "{% for x in l %}{% for y in 'ab' %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for x in l %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in l %}{{ x }}{% endfor %}{{ x is defined }}", "{% set x = 9 %}{% for x in l %}{{ x }}{% endfor %}{{ x }}", "{% for x in l %}{% set y = x %}{% endfor %}{{ y is defined }}", "{% set y = 0 %}{% for x in l %}{% set y = y + x %}{{ y }}{% endfor %}{{ y }}",
    "{% for x in l recursive %}{{ x }}{% endfor %}", "{% for x in [{'n': 1, 'c': [{'n': 2, 'c': []}, {'n': 3, 'c': [{'n': 4, 'c': []}]}]}] recursive %}{{ loop.depth }}{{ x.n }}({{ loop(x.c) }}){% endfor %}", "{% for x in l %}{{ loop(l) }}{% endfor %}",
    "{% for loop in l %}{% endfor %}", "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% set loop = 1 %}{{ loop }}", "{% for x in l[::-1] %}{{ x }}{{ loop.index0 }}{% endfor %}", "{% for x in l, 5 %}{{ x }}{% endfor %}", "{% for 5 in l %}{% endfor %}", "{% for x l %}{% endfor %}",
    "{% for x in [1,2,3] if loop.first %}{{ x }}{% endfor %}", "{% for m in messages %}{{ m.role }}{% if not loop.last %}, {% endif %}{% endfor %}", "{{ loop is defined }}", "{% set g = l | map('string') %}{{ g | list }}{{ g | list }}", "{% set g = l | select %}{{ g | first }}{{ g | list }}",
    "{% set ns = namespace(f=false) %}{% for x in l if not ns.f %}{{ x }}{% if x == 1 %}{% set ns.f = true %}{% endif %}{% endfor %}", "{% for x in d.values() %}{{ x }}|{% endfor %}", "{% for x in users | selectattr('age', 'eq', 30) %}{{ loop.index }}{{ x.name }}{{ loop.last }}{% endfor %}",
    # set
    "{% set a = 1 %}{{ a }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1, 2] %}{{ a }}{{ b }}", "{% set a, b = 1 %}", "{% set a, b = b, a %}{{ a is defined }}", "{% set a = 1, 2 %}{{ a }}", "{% set a %}x{{ n }}y{% endset %}[{{ a }}]", "{% set a | upper %}x{% endset %}{{ a }}",
    "{% set a | replace('x', 'y') | upper %}xz{% endset %}{{ a }}", "{% set a %}{% set b = 1 %}{% endset %}{{ b is defined }}", "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set ns = namespace() %}{% set ns.a.b = 1 %}",
    "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace() %}{% set ns.x %}block{% endset %}{{ ns.x }}", "{% set true = 1 %}", "{% set 1 = 2 %}", "{% set a.b.c = 2 %}", "{% set a[0] = 2 %}", "{% set a == 2 %}", "{% set %}", "{% set a = %}",
    "{{ n }}{% set n = 1 %}{{ n }}", "{% set n = n + 1 %}{{ n }}", "{% if true %}{% set q = 1 %}{% endif %}{{ q }}", "{% if false %}{% set n = 1 %}{% endif %}{{ n }}", "{% if false %}{% set q = 1 %}{% endif %}{{ q is defined }}", "{% for i in l %}{% set n = i %}{{ n }}{% endfor %}{{ n }}",
    "{% for i in [1] %}{{ n }}{% endfor %}{% set n = 1 %}", "{% macro m() %}[{{ n }}]{% endmacro %}{{ m() }}{% set n = 1 %}{{ m() }}", "{% for i in [1, 2] %}{{ q is defined }}{% set q = i %}{{ q }}{% endfor %}", "{% for i in [1, 2] %}{% for k in [1] %}{{ n }}{% endfor %}{% set n = i %}{% endfor %}",
    "{% for i in [1, 2] %}{% if i == 2 %}{% set n = 5 %}{% endif %}{{ n }}{% endfor %}", "{% if n %}{% set n = 3 %}{{ n }}{% else %}{% set n = 4 %}{% endif %}{{ n }}", "{% set messages = messages[1:] %}{{ messages | length }}", "{% set m = messages[0] %}{% set m = m.role %}{{ m }}",
    "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a is defined }}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}", "{% with a = 1, b = a %}{{ b is defined }}{% endwith %}", "{% with n = 1 %}{{ n }}{% endwith %}{{ n }}",
    # macros
    "{% macro f() %}x{% endmacro %}{{ f() }}{{ f() | upper }}", "{% macro f(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, 3) }}|{{ f(1, c=5) }}|{{ f(b=4, a=0) }}|{{ f() }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}",
    "{% macro f(a, b) %}{{ a is defined }}{{ b is defined }}{% endmacro %}{{ f(1) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}", "{% macro f(a) %}{{ a }}{{ varargs | length }}{% endmacro %}{{ f(1, 2, 3) }}", "{% macro f(a=1, b) %}{% endmacro %}", "{% macro f(a, a) %}{% endmacro %}",
    "{{ f() }}{% macro f() %}x{% endmacro %}", "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}late{% endmacro %}{{ f() }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro f() %}{{ n }}{% endmacro %}{% set n = 2 %}{{ f() }}", "{% macro f() %}{% set n = 1 %}{{ n }}{% endmacro %}{{ f() }}{{ n }}",
    "{% for x in l %}{{ f(x) }}{% endfor %}{% macro f(x) %}{{ x }}{% endmacro %}", "{% macro f(x) %}{{ x }}{% endmacro %}{% for x in l %}{{ f(x * 2) }}{% endfor %}", "{% macro f() %}{{ x is defined }}{% endmacro %}{% for x in l %}{{ f() }}{% endfor %}", "{% for x in l %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% endfor %}{{ f is defined }}",
    "{% macro f() %}  a  {% endmacro %}[{{ f() }}][{{ f() | trim }}][{{- f() -}}]", "{% macro f() -%}\n  a\n{%- endmacro %}[{{ f() }}]", "{% macro f(x) %}{{ x }}{% endmacro %}{{ f }}{{ f.name }}", "{% macro f(x='d') %}{{ x }}{% endmacro %}{{ f(none) }}{{ f(missing) }}{{ f() }}", "{% macro f(*a) %}{% endmacro %}", "{% if true %}{% macro f() %}x{% endmacro %}{% endif %}{{ f() }}",
    "{% macro f(x, y=none) %}{{ x }}{% if y %}-{{ y }}{% endif %}{% endmacro %}{{ f('a') ~ f('b', 'c') }}", "{% macro outer() %}{% macro inner(x) %}<{{ x }}>{% endmacro %}{{ inner(1) }}{% endmacro %}{{ outer() }}", "{% macro f(**k) %}{% endmacro %}", "{% set f = 5 %}{{ f() }}", "{% macro f(d={}) %}{{ d }}{% endmacro %}{{ f() }}{{ f({'a': 1}) }}",
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "{% call f() %}{% endcall %}",
    "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}body {{ n }}{% endcall %}", "{% macro f() %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(v) f() %}<{{ v }}>{% endcall %}", "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}", "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}", "{% macro f(a) %}{{ a }}{{ caller() }}{% endmacro %}{% call f(1) %}{% set q = 5 %}{{ q }}{% endcall %}{{ q is defined }}",
    "{% macro f(caller=none) %}{{ caller }}{% endmacro %}{{ f() }}", "{% call n %}{% endcall %}", "{% macro f() %}{{ caller('a', k='b') }}{% endmacro %}{% call(x, k='c') f() %}{{ x }}{{ k }}{% endcall %}",
    # blocks
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter trim | replace('a', 'b') %}  aaa {% set q = 1 %} {% endfilter %}{{ q is defined }}", "{% filter nosuch %}x{% endfilter %}", "{% filter trim %}\n x \n{% endfilter %}.", "{% filter indent(2, true) %}a\nb{% endfilter %}", "{% filter %}{% endfilter %}",
    "{% generation %}x{{ n }}{% endgeneration %}", "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}", "  {% generation %}\nx\n  {% endgeneration %}\ny", "{% for m in messages %}{%- generation -%} {{ m.role }}{{ loop.index }} {%- endgeneration -%}{% endfor %}",
    "{% print 1, 'a' %}", "{% print n %}", "{% do x %}", "{% nosuch %}", "{% 5 %}", "{% debug %}", "{% trans %}x{% endtrans %}", "{% endgeneration %}",
    # filters and tests that do not exist
    "{{ s | nosuch }}", "{{ s is nosuch }}", "{% if false %}{{ s | nosuch }}{% endif %}ok", "{% if true %}{{ s | nosuch }}{% endif %}", "{{ s | nosuch if false else 'ok' }}", "{% for x in el %}{{ s | nosuch }}{% endfor %}", "{% macro f() %}{{ s | nosuch }}{% endmacro %}ok", "{% if false %}{% for x in l %}{{ x | nosuch }}{% endfor %}{% endif %}ok",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}", "{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}", "{{ cycler() }}",
    "{{ raise_exception('a\\nb') }}", "{% if n == 7 %}{{ raise_exception('seven: ' + s) }}{% endif %}", "a{{ missing.x }}b", "{{ d.a.b.c }}", "line 1\nline 2 {{ missing.x }}",
    "{% set x = {'a': 1, 'b': {'c': [1, 2]}} %}{{ x }}{{ x.b.c[1] }}", "{{ {'a': missing} }}{{ [missing] }}", "{% set x = dict(messages[0], role='user') %}{{ x }}", "{% set l2 = l + [4] %}{{ l2 }}{{ l }}", "{{ '%s' | format(n) }}{{ '{:>5}'.format(n) }}",
    "{%- set ns = namespace(index=0, tool=false, last='') -%}{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.index = loop.index0 -%}{%- endif -%}{%- endfor -%}{{ ns.index }}",
    "{% for m in messages %}\n{{ '<|im_start|>' + m['role'] + '\n' + m['content'] | trim + '<|im_end|>' + '\n' }}\n{% endfor %}\n{% if add_generation_prompt is defined and add_generation_prompt %}\n{{ '<|im_start|>assistant\n' }}\n{% endif %}\n",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}", "{{ bos_token }}{{ messages[-1].tool_calls[0].function.arguments | tojson }}", "{{ messages | tojson(indent=4) }}", "{{ messages | map(attribute='content') | join('\\n') }}",
    "{{ (messages | last).content }}{{ (messages | selectattr('role', 'equalto', 'user') | list)[-1]['content'] }}", "{%- for k, v in messages[2].tool_calls[0].function.arguments | items %}{{ k }}={{ v | string }}{% endfor %}", "{% for x in 'a-b'.split('-') %}{{ x }}{% endfor %}", "{{ messages[0].content.split('</think>')[-1].lstrip('\\n') }}",
    "{% set content %}\n{{ s }}\n{% endset %}[{{ content }}]", "{{ 'a' if x is defined else 'b' }}{% set x = 1 %}", "{% set x = x if x is defined else 5 %}{{ x }}", "{{ s[:5] + '...' if s | length > 5 else s }}", "{{ [1, 2, 3] | map('string') | map('upper') | join(',') }}", "{{ '\\n'.join(['a', 'b']) }}", "{{ \"a\" + 'b' ~ 1 }}",
    "{% set a = namespace(v=[]) %}{% set a.v = a.v + [1] %}{% set a.v = a.v + [2] %}{{ a.v }}", "{% set x = [] %}{% set _ = x.append(1) %}{{ x }}", "{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }}{% endfor %}{% endfor %}",
    "{{ n\n+\n1 }}", "{%- if true -%}\n\n  a  \n\n{%- else -%}b{%- endif -%}\n\n c", "{% if true %}{% endif %}", "{% for x in [] %}{% endfor %}", "{{ '' }}", "{{ none }}{{ true }}{{ 1.0 }}",
    "{% set v = 'x' %}{% macro m() %}{{ v }}{% set v = 'y' %}{{ v }}{% endmacro %}{{ m() }}{{ v }}", "{% macro m(messages) %}{{ messages | length }}{% endmacro %}{{ m(messages[:1]) }}", "{% set tools = tools | default([]) %}{{ tools }}", "{% set tool = d %}{% set tool = tool.nested %}{{ tool }}",
    "{% macro a() %}{% for x in l %}{% if x == 1 %}{{ b(x) }}{% else %}{{ x }}{% endif %}{% endfor %}{% endmacro %}{% macro b(x) %}<{{ x }}>{% endmacro %}{{ a() }}",
]


def main():
    env = environment()
    templates = ["{{ " + line + " }}" for line in EXPRESSIONS.split("\n") if line.strip() and not line.startswith(" #")] + TEMPLATES
    unsure = ("<function", " object at ", "<built-in", "<bound", "<class", "<Macro", "<LoopContext")
    cases, seen = [], set()
    for template in templates:
        if template in seen:
            continue
        seen.add(template)
        result = render(env, template, VARS)
        if any(word in result.get("out", "") for word in unsure):
            continue  # an address in memory
        cases.append({"template": template, **result})
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write('{"now": %d,\n "vars": %s,\n "cases": [\n' % ((NOW - datetime.datetime(1970, 1, 1)).total_seconds(), json.dumps(VARS)))
        f.write(",\n".join("  " + json.dumps(c, ensure_ascii=True) for c in cases))
        f.write("\n]}\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
