// The instructions of tensor cores that CUDA C++ has no name for.

// c[16 x 8] += a[16 x 16] b[16 x 8], float32 sums. Lane g * 4 + t holds rows g and g + 8 of a and c.
__device__ __forceinline__ void
mma_16x8x16(float* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four blocks of 8 x 8 halves; lane 8 i + r names the 16 bytes of row r of block i. Lane g * 4 + t
// gets columns 2 t and 2 t + 1 of row g.
__device__ __forceinline__ void load_blocks(uint32_t* out, const void* row) {
  uint32_t from = uint32_t(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(from));
}

// The same, transposed: lane g * 4 + t gets rows 2 t and 2 t + 1 of column g.
__device__ __forceinline__ void load_blocks_transposed(uint32_t* out, const void* row) {
  uint32_t from = uint32_t(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(from));
}

// Copy 16 bytes to shared memory in the background; zeros instead where they do not exist.
__device__ __forceinline__ void copy_16_async(void* shared, const void* global, bool exists) {
  uint32_t to = uint32_t(__cvta_generic_to_shared(shared));
  int n_bytes = exists ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(n_bytes)
               : "memory");
}

__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

__device__ __forceinline__ void copies_wait_all() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }
