// Sums over a warp and over a block of whole warps.

__device__ __forceinline__ float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// parts: shared memory for a float of each warp; free for other use after the next __syncthreads.
__device__ __forceinline__ float block_sum(float value, float* parts) {
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < int(blockDim.x) / 32; i++) sum += parts[i];
  return sum;
}
