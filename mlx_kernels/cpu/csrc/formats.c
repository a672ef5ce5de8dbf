/* The packed block formats of GGUF, in plain C. Every other path is checked against this one.
 *
 * All formats are the same idea: a run of 16 or 32 small integers u shares a scale s and an offset
 * o, and a weight is s * u + o. They differ in where the bits of u, s and o are kept.
 */
#include "internal.h"

static const struct {
    int16_t values, bytes;
} FORMATS[T_END] = {
    [T_F32] = {1, 4},     [T_F16] = {1, 2},     [T_BF16] = {1, 2},    [T_Q4_0] = {32, 18},
    [T_Q4_1] = {32, 20},  [T_Q5_0] = {32, 22},  [T_Q5_1] = {32, 24},  [T_Q8_0] = {32, 34},
    [T_Q2_K] = {256, 84}, [T_Q3_K] = {256, 110}, [T_Q4_K] = {256, 144}, [T_Q5_K] = {256, 176},
    [T_Q6_K] = {256, 210}, [T_IQ2_XXS] = {256, 66}, [T_MXFP4] = {32, 17},
};

int ds4_block_values(int type) { return FORMATS[type].values; }
int ds4_block_bytes(int type) { return FORMATS[type].bytes; }

static void nibbles(const uint8_t *p, int8_t *u) {
    for (int i = 0; i < 16; i++) {
        u[i] = p[i] & 15;
        u[i + 16] = p[i] >> 4;
    }
}

static void fifth_bits(const uint8_t *p, int8_t *u) {
    uint32_t bits = load_u32(p);
    for (int i = 0; i < 32; i++) u[i] |= (bits >> i & 1) << 4;
}

static void fill2(float *to, float value) { to[0] = to[1] = value; }

static void unpack_q4_k_scales(const uint8_t *b, float *s, float *o) {
    uint8_t pairs[16];
    float d = half_bits(load_u16(b)), d_min = half_bits(load_u16(b + 2));
    six_bit_pairs(b + 4, pairs);
    for (int g = 0; g < 8; g++) {
        fill2(s + 2 * g, d * pairs[g]);
        fill2(o + 2 * g, -d_min * pairs[8 + g]);
    }
}

static void unpack_q2_k(const uint8_t *b, int8_t *u, float *s, float *o) {
    float d = half_bits(load_u16(b + 80)), d_min = half_bits(load_u16(b + 82));
    for (int h = 0; h < 2; h++)
        for (int g = 0; g < 4; g++)
            for (int i = 0; i < 32; i++)
                u[128 * h + 32 * g + i] = b[16 + 32 * h + i] >> (2 * g) & 3;
    for (int r = 0; r < 16; r++) {
        s[r] = d * (b[r] & 15);
        o[r] = -d_min * (b[r] >> 4);
    }
}

static void unpack_q3_k(const uint8_t *b, int8_t *u, float *s, float *o) {
    uint8_t scales[16];
    float d = half_bits(load_u16(b + 108));
    for (int h = 0; h < 2; h++)
        for (int g = 0; g < 4; g++)
            for (int i = 0; i < 32; i++)
                u[128 * h + 32 * g + i] =
                    (b[32 + 32 * h + i] >> (2 * g) & 3) | (b[i] >> (4 * h + g) & 1) << 2;
    six_bit_scales(b + 96, scales);
    for (int r = 0; r < 16; r++) {
        s[r] = d * (scales[r] - 32);
        o[r] = -4 * s[r];
    }
}

static void unpack_q45_k(const uint8_t *quants, const uint8_t *fifth, int8_t *u) {
    for (int g = 0; g < 8; g += 2)
        for (int i = 0; i < 32; i++) {
            u[32 * g + i] = quants[16 * g + i] & 15;
            u[32 * g + 32 + i] = quants[16 * g + i] >> 4;
        }
    if (fifth)
        for (int g = 0; g < 8; g++)
            for (int i = 0; i < 32; i++) u[32 * g + i] |= (fifth[i] >> g & 1) << 4;
}

static void unpack_q6_k(const uint8_t *b, int8_t *u, float *s, float *o) {
    float d = half_bits(load_u16(b + 208));
    for (int h = 0; h < 2; h++) {
        const uint8_t *low = b + 64 * h, *high = b + 128 + 32 * h;
        int8_t *to = u + 128 * h;
        for (int i = 0; i < 32; i++) {
            to[i] = (low[i] & 15) | (high[i] & 3) << 4;
            to[i + 32] = (low[i + 32] & 15) | (high[i] >> 2 & 3) << 4;
            to[i + 64] = low[i] >> 4 | (high[i] >> 4 & 3) << 4;
            to[i + 96] = low[i + 32] >> 4 | (high[i] >> 6 & 3) << 4;
        }
    }
    for (int r = 0; r < 16; r++) {
        s[r] = d * (int8_t)b[192 + r];
        o[r] = -32 * s[r];
    }
}

/* A half, then for each 32 values four bytes that select octets of magnitudes, and a word with four
 * times 7 bits of signs and a scale of 4 bits on top. */
static void unpack_iq2_xxs(const uint8_t *b, int8_t *u, float *s, float *o) {
    float d = half_bits(load_u16(b));
    for (int g = 0; g < 8; g++) {
        const uint8_t *octets = b + 2 + 8 * g;
        uint32_t word = load_u32(octets + 4);
        for (int j = 0; j < 4; j++) {
            uint64_t negative = ds4_iq2_signs[word >> (7 * j) & 127];
            uint64_t magnitudes = ds4_iq2_grid[octets[j]];
            for (int i = 0; i < 8; i++) {
                int value = magnitudes >> (8 * i) & 255;
                u[32 * g + 8 * j + i] = (int8_t)(negative >> (8 * i) & 1 ? -value : value);
            }
        }
        fill2(s + 2 * g, d * (0.5f + (float)(word >> 28)) * 0.25f);
        fill2(o + 2 * g, 0.0f);
    }
}

/* Four-bit floats of the OCP Microscaling specification (E2M1), doubled to be integers. */
static void unpack_mxfp4(const uint8_t *b, int8_t *u, float *s, float *o) {
    static const int8_t DOUBLED[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    nibbles(b + 1, u);
    for (int i = 0; i < 32; i++) u[i] = DOUBLED[u[i]];
    fill2(s, mxfp4_scale(b[0]));
    fill2(o, 0.0f);
}

void ds4_unpack(int type, const uint8_t *b, int8_t *u, float *s, float *o) {
    switch (type) {
    case T_Q4_0:
        nibbles(b + 2, u);
        fill2(s, half_bits(load_u16(b)));
        fill2(o, -8 * s[0]);
        break;
    case T_Q4_1:
        nibbles(b + 4, u);
        fill2(s, half_bits(load_u16(b)));
        fill2(o, half_bits(load_u16(b + 2)));
        break;
    case T_Q5_0:
        nibbles(b + 6, u);
        fifth_bits(b + 2, u);
        fill2(s, half_bits(load_u16(b)));
        fill2(o, -16 * s[0]);
        break;
    case T_Q5_1:
        nibbles(b + 8, u);
        fifth_bits(b + 4, u);
        fill2(s, half_bits(load_u16(b)));
        fill2(o, half_bits(load_u16(b + 2)));
        break;
    case T_Q8_0:
        memcpy(u, b + 2, 32);
        fill2(s, half_bits(load_u16(b)));
        fill2(o, 0.0f);
        break;
    case T_MXFP4: unpack_mxfp4(b, u, s, o); break;
    case T_IQ2_XXS: unpack_iq2_xxs(b, u, s, o); break;
    case T_Q2_K: unpack_q2_k(b, u, s, o); break;
    case T_Q3_K: unpack_q3_k(b, u, s, o); break;
    case T_Q4_K:
        unpack_q45_k(b + 16, NULL, u);
        unpack_q4_k_scales(b, s, o);
        break;
    case T_Q5_K:
        unpack_q45_k(b + 48, b + 16, u);
        unpack_q4_k_scales(b, s, o);
        break;
    case T_Q6_K: unpack_q6_k(b, u, s, o); break;
    }
}

void ds4_expand_row(int type, const uint8_t *row, int64_t cols, float *out) {
    if (type == T_F32) {
        memcpy(out, row, (size_t)cols * 4);
    } else if (type == T_F16) {
        for (int64_t i = 0; i < cols; i++) out[i] = half_bits(load_u16(row + 2 * i));
    } else if (type == T_BF16) {
        for (int64_t i = 0; i < cols; i++) out[i] = bfloat_bits(load_u16(row + 2 * i));
    } else {
        int values = ds4_block_values(type), bytes = ds4_block_bytes(type);
        int8_t u[SUPER];
        float s[16], o[16];
        for (int64_t at = 0; at < cols; at += values, row += bytes) {
            ds4_unpack(type, row, u, s, o);
            for (int i = 0; i < values; i++) out[at + i] = s[i / 16] * u[i] + o[i / 16];
        }
    }
}
