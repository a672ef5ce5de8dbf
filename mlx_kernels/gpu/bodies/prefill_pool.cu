// out [n, width]: each channel of R tokens pooled by the softmax of its scores; the algorithm is told
// in the cpu world's file. history [M, 2 w]: values, then scores. At R = 4 a row has the first halves
// of the group before, too, and the second halves of its own. sizes: width, first token of the first
// group in history, whether there is a group before that.
const int width = sizes[0], channel = blockIdx.x * blockDim.x + threadIdx.x;
constexpr bool IS_PAIR = R == 4;
constexpr int MEMBERS = IS_PAIR ? 8 : R;
if (channel < width) {
  const int w = IS_PAIR ? 2 * width : width;
  const bool has_before = IS_PAIR && (sizes[2] || blockIdx.y > 0);
  const int64_t own = int64_t(sizes[1]) + int64_t(blockIdx.y) * R;
  const float* start = history + (IS_PAIR ? own - R : own) * 2 * w + channel;
  float largest = -1e30f, total = 0.0f, sum = 0.0f;
  for (int m = IS_PAIR && !has_before ? R : 0; m < MEMBERS; m++) {
    const float* at = start + int64_t(m) * 2 * w + (IS_PAIR && m >= R ? width : 0);
    largest = fmaxf(largest, at[w]);
  }
  for (int m = IS_PAIR && !has_before ? R : 0; m < MEMBERS; m++) {
    const float* at = start + int64_t(m) * 2 * w + (IS_PAIR && m >= R ? width : 0);
    float share = expf(at[w] - largest);
    total += share;
    sum += share * at[0];
  }
  out[int64_t(blockIdx.y) * width + channel] = sum / total;
}
