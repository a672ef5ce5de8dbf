// out[i] = value i of a packed matrix divided by 32, as half. A thread decodes one value: neighbours
// read neighbouring bytes. sizes: rows, columns.
const int n_columns = sizes[1];
const Planes planes{quants, high, scales, factors};
const int64_t n_values = int64_t(sizes[0]) * n_columns;
const int64_t n_threads = int64_t(gridDim.x) * blockDim.x;
for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n_values; i += n_threads) {
  int64_t block = i / Format::VALUES;
  float value = Format::value(planes, table, block, int(i - block * Format::VALUES));
  out[i] = __float2half_rn(value * 0.03125f);
}
