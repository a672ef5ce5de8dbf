// out = x, in units of 16 bytes, four at a time.
const uint4* from = reinterpret_cast<const uint4*>(x);
uint4* to = reinterpret_cast<uint4*>(out);
const int64_t n = x_shape[0] / 4, stride = int64_t(gridDim.x) * blockDim.x;
int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
for (; i + 3 * stride < n; i += 4 * stride) {
  uint4 a = from[i], b = from[i + stride], c = from[i + 2 * stride], d = from[i + 3 * stride];
  to[i] = a;
  to[i + stride] = b;
  to[i + 2 * stride] = c;
  to[i + 3 * stride] = d;
}
for (; i < n; i += stride) to[i] = from[i];
