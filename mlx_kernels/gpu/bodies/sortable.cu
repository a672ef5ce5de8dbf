// A float as an integer of the same order; both zeros are equal.
__device__ __forceinline__ uint32_t sortable(float x) {
  uint32_t bits = __float_as_uint(x + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
