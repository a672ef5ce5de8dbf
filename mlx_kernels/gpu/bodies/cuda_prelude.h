// The few names of Metal that shared bodies use, for CUDA. A shared body is Metal text; Metal needs
// no header for them. All 32 lanes of a warp take part in every function here.
#include <cuda_fp16.h>

#define device
#define threadgroup __shared__
#define threadgroup_barrier(flags) __syncthreads()
#define thread_position_in_threadgroup threadIdx
#define threadgroup_position_in_grid blockIdx
#define threadgroups_per_grid gridDim
#define thread_index_in_simdgroup (threadIdx.x & 31u)
#define simdgroup_index_in_threadgroup (threadIdx.x >> 5)

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

typedef __half half;

template <typename To, typename From>
__device__ __forceinline__ To as_type(From value) {
  static_assert(sizeof(To) == sizeof(From), "as_type between types of different size");
  To result;
  memcpy(&result, &value, sizeof(To));
  return result;
}
template <typename T>
__device__ __forceinline__ T simd_shuffle_xor(T value, unsigned short mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <typename T>
__device__ __forceinline__ T simd_shuffle(T value, unsigned short lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
template <typename T>
__device__ __forceinline__ T simd_sum(T value) {
  for (int step = 16; step > 0; step /= 2) value += simd_shuffle_xor(value, step);
  return value;
}
template <typename T>
__device__ __forceinline__ T simd_max(T value) {
  for (int step = 16; step > 0; step /= 2) {
    T other = simd_shuffle_xor(value, step);
    value = other > value ? other : value;
  }
  return value;
}
template <typename T>
__device__ __forceinline__ T simd_shuffle_up(T value, unsigned short step) {
  return __shfl_up_sync(0xffffffffu, value, step);
}
