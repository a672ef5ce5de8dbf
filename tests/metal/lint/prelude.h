// Metal's names for clang's "C++ for OpenCL", whose address spaces are Metal's: only what bodies may
// use, declared and not defined.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define device __global
#define threadgroup __local
#define constant __constant
#define thread __private

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef ulong size_t;
typedef char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
typedef half float16_t;

template <typename T, int N>
using vec = T __attribute__((ext_vector_type(N)));
#define VECTORS(name)            \
  typedef vec<name, 2> name##2;  \
  typedef vec<name, 3> name##3;  \
  typedef vec<name, 4> name##4;
VECTORS(char) VECTORS(uchar) VECTORS(short) VECTORS(ushort) VECTORS(int) VECTORS(uint)
VECTORS(long) VECTORS(ulong) VECTORS(half) VECTORS(float)
#undef VECTORS

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define M_PI_F 3.14159265358979323846f
#define FLT_MAX 3.40282347e+38f

namespace metal {

enum class mem_flags { mem_none, mem_device, mem_threadgroup, mem_device_and_threadgroup };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

template <typename To, typename From>
To as_type(From value) {
  static_assert(sizeof(To) == sizeof(From), "as_type between types of different size");
  return To();
}

// One type only: mixed arguments are ambiguous in Metal.
template <typename T> T min(T, T);
template <typename T> T max(T, T);
template <typename T> T clamp(T, T, T);
template <typename T> T abs(T);
template <typename T> T select(T, T, bool);
#define FLOAT_FUNCTION(name) float name(float); float2 name(float2); float4 name(float4); half name(half);
FLOAT_FUNCTION(exp) FLOAT_FUNCTION(exp2) FLOAT_FUNCTION(log) FLOAT_FUNCTION(log2)
FLOAT_FUNCTION(sqrt) FLOAT_FUNCTION(rsqrt) FLOAT_FUNCTION(sin) FLOAT_FUNCTION(cos)
FLOAT_FUNCTION(tanh) FLOAT_FUNCTION(floor) FLOAT_FUNCTION(ceil) FLOAT_FUNCTION(trunc)
FLOAT_FUNCTION(rint) FLOAT_FUNCTION(round) FLOAT_FUNCTION(fabs)
#undef FLOAT_FUNCTION
float fma(float, float, float);
float4 fma(float4, float4, float4);
float pow(float, float);
float fmin(float, float);
float fmax(float, float);
float dot(float4, float4);
bool isnan(float);
bool isinf(float);
template <typename T> T popcount(T);
template <typename T> T clz(T);
template <typename T> T ctz(T);

#define SIMD_FUNCTION(name) template <typename T> T name(T);
SIMD_FUNCTION(simd_sum) SIMD_FUNCTION(simd_max) SIMD_FUNCTION(simd_min) SIMD_FUNCTION(simd_product)
SIMD_FUNCTION(simd_and) SIMD_FUNCTION(simd_or) SIMD_FUNCTION(simd_xor)
SIMD_FUNCTION(simd_broadcast_first) SIMD_FUNCTION(simd_prefix_inclusive_sum)
SIMD_FUNCTION(simd_prefix_exclusive_sum)
#undef SIMD_FUNCTION
bool simd_all(bool);
bool simd_any(bool);
#define SIMD_SHUFFLE(name) template <typename T> T name(T, ushort);
SIMD_SHUFFLE(simd_shuffle) SIMD_SHUFFLE(simd_shuffle_xor) SIMD_SHUFFLE(simd_shuffle_down)
SIMD_SHUFFLE(simd_shuffle_up) SIMD_SHUFFLE(simd_broadcast)
#undef SIMD_SHUFFLE

template <typename T, int Rows, int Columns>
struct simdgroup_matrix {
  vec<T, 2> elements;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T);
  vec<T, 2> thread_elements() const;
};
template <typename T, int R, int C> simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T);
// The type of the matrix and of the memory agree: a half matrix is not loaded from floats.
#define MATRIX_MOVES(space)                                                                     \
  template <typename T>                                                                         \
  void simdgroup_load(simdgroup_matrix<T, 8, 8>&, const space T*, ulong = 8, ulong2 = ulong2(0), \
                      bool = false);                                                            \
  template <typename T>                                                                         \
  void simdgroup_store(const simdgroup_matrix<T, 8, 8>&, space T*, ulong = 8, ulong2 = ulong2(0), \
                       bool = false);
MATRIX_MOVES(__global) MATRIX_MOVES(__local)
#undef MATRIX_MOVES
template <typename D, typename A, typename B, typename C>
void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>&, const simdgroup_matrix<A, 8, 8>&,
                                   const simdgroup_matrix<B, 8, 8>&, const simdgroup_matrix<C, 8, 8>&);
template <typename D, typename A, typename B>
void simdgroup_multiply(simdgroup_matrix<D, 8, 8>&, const simdgroup_matrix<A, 8, 8>&,
                        const simdgroup_matrix<B, 8, 8>&);

enum memory_order { memory_order_relaxed };
template <typename T>
struct atomic { T value; };
#define ATOMIC_FUNCTION(name)                                                   \
  template <typename T> T name(device atomic<T>*, T, memory_order);             \
  template <typename T> T name(threadgroup atomic<T>*, T, memory_order);
ATOMIC_FUNCTION(atomic_fetch_add_explicit) ATOMIC_FUNCTION(atomic_fetch_max_explicit)
ATOMIC_FUNCTION(atomic_fetch_min_explicit) ATOMIC_FUNCTION(atomic_fetch_or_explicit)
ATOMIC_FUNCTION(atomic_exchange_explicit)
#undef ATOMIC_FUNCTION
template <typename T> T atomic_load_explicit(device atomic<T>*, memory_order);
template <typename T> void atomic_store_explicit(device atomic<T>*, T, memory_order);

}  // namespace metal
using namespace metal;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
