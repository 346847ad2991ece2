/* sanitizers.h: whether this test was built with the address or the thread sanitizer, 0 or 1: it is then many times as slow, and
 * must not limit its memory. gcc says so by macros, clang and newer gcc answer a question. */
#ifndef WEFT_TESTS_SANITIZERS_H
#define WEFT_TESTS_SANITIZERS_H

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#endif
#endif
#if !defined(ADDRESS_SANITIZER)
#define ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif
#if !defined(THREAD_SANITIZER)
#define THREAD_SANITIZER 0
#endif

#define SANITIZED (ADDRESS_SANITIZER || THREAD_SANITIZER)

#endif
