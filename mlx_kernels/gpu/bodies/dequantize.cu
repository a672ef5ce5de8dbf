// out[i] = value i of a packed matrix as float, rounded to the 11 bits that a TF32 product reads. A
// thread decodes one value: neighbours read neighbouring bytes. sizes: rows, columns.
const int n_columns = sizes[1];
const Planes planes{quants, high, scales, factors};
const int64_t n_values = int64_t(sizes[0]) * n_columns;
const int64_t n_threads = int64_t(gridDim.x) * blockDim.x;
for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n_values; i += n_threads) {
  int64_t block = i / Format::VALUES;
  uint32_t bits = __float_as_uint(Format::value(planes, table, block, int(i - block * Format::VALUES)));
  bits = (bits + 0xfffu + ((bits >> 13) & 1u)) & 0xffffe000u;
  out[i] = __uint_as_float(bits);
}
