// The compressor.

// One channel of a compressed row at its last token, ``position``: a mean of the values of MEMBERS
// tokens, weighted by the softmax of their scores. frontier [capacity, 2 w]: values, then scores,
// of the tokens before, by position; products [2 w]: of this token, without ape [R, w].
// At R = 4 the first four members are the group before, with the first half of their channels.
template <int R>
inline float pooled_of(
    const device float* frontier, const device float* products, const device float* ape, int capacity,
    int w, int width, int position, int channel) {
  const int MEMBERS = R == 4 ? 8 : R;
  float top = -INFINITY;
  for (int m = 0; m < MEMBERS; m++) {
    const int p = position - MEMBERS + 1 + m;
    const int at = w + channel + (R == 4 && m >= 4 ? width : 0);
    if (p >= 0) {
      const float score = p == position ? products[at] + ape[(p % R) * w + at - w]
                                        : frontier[int64_t(p % capacity) * 2 * w + at];
      top = score > top ? score : top;
    }
  }
  float total = 0.0f, sum = 0.0f;
  for (int m = 0; m < MEMBERS; m++) {
    const int p = position - MEMBERS + 1 + m;
    const int at = channel + (R == 4 && m >= 4 ? width : 0);
    if (p >= 0) {
      const int64_t row = int64_t(p % capacity) * 2 * w;
      const float score = p == position ? products[w + at] + ape[(p % R) * w + at] : frontier[row + w + at];
      const float share = exp(score - top);
      total += share;
      sum += share * (p == position ? products[at] : frontier[row + at]);
    }
  }
  return sum / total;
}
