// Relaxed atomics, the only order that Metal has. One OS thread runs everything: each is a load
// and a store that the checked build knows to be atomic.
#pragma once

namespace metal {

enum memory_order { memory_order_relaxed };

template <class T>
struct atomic {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics are of 4 or 8 bytes");
  T value;
};

template <class T>
inline T atomic_load_explicit(const volatile atomic<T>* at, memory_order) {
  T value;
  rt_atomic_load(&at->value, &value, sizeof(T));
  return value;
}
template <class T>
inline void atomic_store_explicit(volatile atomic<T>* at, std::type_identity_t<T> value, memory_order) {
  rt_atomic_store(&at->value, &value, sizeof(T));
}

#define ATOMIC_FUNCTION(name, expression)                                                     \
  template <class T>                                                                          \
  inline T atomic_##name##_explicit(volatile atomic<T>* at, std::type_identity_t<T> value,    \
                                    memory_order order) {                                     \
    T old = atomic_load_explicit(at, order);                                                  \
    T fresh = T(expression);                                                                  \
    rt_atomic_store(&at->value, &fresh, sizeof(T));                                           \
    return old;                                                                               \
  }
ATOMIC_FUNCTION(fetch_add, old + value) ATOMIC_FUNCTION(fetch_sub, old - value)
ATOMIC_FUNCTION(fetch_max, old < value ? value : old) ATOMIC_FUNCTION(fetch_min, value < old ? value : old)
ATOMIC_FUNCTION(fetch_or, old | value) ATOMIC_FUNCTION(fetch_and, old & value)
ATOMIC_FUNCTION(fetch_xor, old ^ value) ATOMIC_FUNCTION(exchange, value)
#undef ATOMIC_FUNCTION

template <class T>
inline bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* at, T* expected,
                                                  std::type_identity_t<T> desired, memory_order order,
                                                  memory_order) {
  T old = atomic_load_explicit(at, order);
  if (old == *expected) {
    rt_atomic_store(&at->value, &desired, sizeof(T));
    return true;
  }
  *expected = old;
  return false;
}

}  // namespace metal

typedef metal::atomic<int> atomic_int;
typedef metal::atomic<uint> atomic_uint;
typedef metal::atomic<float> atomic_float;
