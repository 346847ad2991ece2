"""Stock of a small shop: what is there, what has to be ordered."""
import csv


class Item:
    def __init__(self, name, count, least):
        self.name = name
        self.count = count
        self.least = least

    def short(self):
        """How many are missing from the least that should be there."""
        return max(0, self.least - self.count)


def load(path):
    """Items of a file with the columns name, count and least."""
    items = []
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            items.append(Item(row["name"], int(row["count"]), int(row["least"])))
    return items


def to_order(items, spare=0):
    """Names and numbers of what is short, with some to spare, by name."""
    wanted = {item.name: item.short() + spare for item in items if item.short()}
    return sorted(wanted.items())


def take(items, name, n):
    """Removes n of an item; it must be there."""
    for item in items:
        if item.name == name:
            if item.count < n:
                raise ValueError(f"only {item.count} of {name} are left")
            item.count -= n
            return item
    raise KeyError(name)


def report(items):
    """One line for each item."""
    for item in sorted(items, key=lambda i: i.name):
        mark = "!" if item.short() else " "
        print(f"{mark} {item.name:20} {item.count:5} of {item.least:5}")
