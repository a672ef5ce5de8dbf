// Blocks of up to 768 threads: 80 registers each. MLX writes the head of a kernel, so the bound goes
// where that says __global__.
#undef __global__
#define __global__ __attribute__((global)) __launch_bounds__(768, 1)
