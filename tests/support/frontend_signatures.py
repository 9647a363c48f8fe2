"""What some graphs of `tests/data/frontends` must look like to a caller, whoever dumped them."""

from __future__ import annotations

BF16 = "BFLOAT16"
Q, Q_STRIDE = (2, 8, 256, 64), (131072, 16384, 64, 1)
KV, KV_STRIDE = (2, 2, 512, 64), (65536, 32768, 64, 1)
ONE = (1, 1, 1, 1)
ROWS, ROWS_STRIDE = (32, 128, 1, 1), (128, 1, 1, 1)
CHANNELS, CHANNELS_STRIDE = (1, 128, 1, 1), (128, 1, 1, 1)
STATISTICS = (32, 1, 1, 1)

# Graph → argument, role, data type, dim, stride.
SIGNATURES = {
    "matmul_bias_relu": [
        ("a_ptr", "input", "HALF", (2, 64, 32), (2048, 32, 1)),
        ("b_ptr", "input", "HALF", (2, 32, 16), (512, 16, 1)),
        ("bias_ptr", "input", "HALF", (1, 1, 16), (16, 16, 1)),
        ("y_ptr", "output", "HALF", (2, 64, 16), (1024, 16, 1)),
    ],
    "matmul_unnamed": [
        ("a_ptr", "input", "HALF", (2, 64, 32), (2048, 32, 1)),
        ("b_ptr", "input", "HALF", (2, 32, 16), (512, 16, 1)),
        ("out_0_ptr", "output", "HALF", (2, 64, 16), (1024, 16, 1)),
    ],
    "conv_all_uids": [
        ("x_ptr", "input", "HALF", (4, 8, 16, 16), (2048, 1, 128, 8)),
        ("w_ptr", "input", "HALF", (32, 8, 3, 3), (72, 1, 24, 8)),
        ("bias_ptr", "input", "HALF", (1, 32, 1, 1), (32, 1, 32, 32)),
        ("y_ptr", "output", "HALF", (4, 32, 16, 16), (8192, 1, 512, 32)),
    ],
    "same_tensor_twice": [
        ("x_ptr", "input", "HALF", (4, 8), (8, 1)),
        ("y_ptr", "output", "HALF", (4, 8), (8, 1)),
    ],
    "output_read_again": [
        ("a_ptr", "input", "HALF", (1, 16, 8), (128, 8, 1)),
        ("b_ptr", "input", "HALF", (1, 8, 16), (128, 16, 1)),
        ("c_ptr", "output", "HALF", (1, 16, 16), (256, 16, 1)),
        ("y_ptr", "output", "HALF", (1, 16, 16), (256, 16, 1)),
    ],
    "scalar_required": [
        ("x_ptr", "input", "FLOAT", (4, 8), (8, 1)),
        ("y_ptr", "output", "FLOAT", (4, 8), (8, 1)),
        ("alpha", "scalar", "FLOAT", (1, 1), (1, 1)),
    ],
    "scalar_unnamed": [
        ("x_ptr", "input", "FLOAT", (4, 8), (8, 1)),
        ("y_ptr", "output", "FLOAT", (4, 8), (8, 1)),
        ("in_1", "scalar", "INT32", (1, 1), (1, 1)),
    ],
    "scalar_with_value": [
        ("x_ptr", "input", "FLOAT", (4, 8), (8, 1)),
        ("y_ptr", "output", "FLOAT", (4, 8), (8, 1)),
    ],
    "layernorm": [
        ("x_ptr", "input", BF16, ROWS, ROWS_STRIDE),
        ("gamma_ptr", "input", "FLOAT", CHANNELS, CHANNELS_STRIDE),
        ("beta_ptr", "input", "FLOAT", CHANNELS, CHANNELS_STRIDE),
        ("y_ptr", "output", BF16, ROWS, ROWS_STRIDE),
        ("mean_ptr", "output", "FLOAT", STATISTICS, ONE),
        ("rstd_ptr", "output", "FLOAT", STATISTICS, ONE),
        ("epsilon", "scalar", "FLOAT", ONE, ONE),
    ],
    "sdpa_padding": [
        ("q_ptr", "input", BF16, Q, Q_STRIDE),
        ("k_ptr", "input", BF16, KV, KV_STRIDE),
        ("v_ptr", "input", BF16, KV, KV_STRIDE),
        ("seq_len_q_ptr", "input", "INT32", (2, 1, 1, 1), ONE),
        ("seq_len_kv_ptr", "input", "INT32", (2, 1, 1, 1), ONE),
        ("o_ptr", "output", BF16, Q, Q_STRIDE),
        ("stats_ptr", "output", "FLOAT", (2, 8, 256, 1), (2048, 256, 1, 1)),
        ("scale", "scalar", "FLOAT", ONE, ONE),
    ],
    "sdpa_ragged": [
        ("q_ptr", "input", BF16, Q, Q_STRIDE),
        ("k_ptr", "input", BF16, KV, KV_STRIDE),
        ("v_ptr", "input", BF16, KV, KV_STRIDE),
        ("seq_len_q_ptr", "input", "INT32", (2, 1, 1, 1), ONE),
        ("seq_len_kv_ptr", "input", "INT32", (2, 1, 1, 1), ONE),
        ("q_offsets_ptr", "input", "INT64", (3, 1, 1, 1), ONE),
        ("kv_offsets_ptr", "input", "INT64", (3, 1, 1, 1), ONE),
        ("o_ptr", "output", BF16, Q, Q_STRIDE),
    ],
    "pointwise_chain": [
        ("x_ptr", "input", "HALF", (4, 8), (8, 1)),
        ("other_ptr", "input", "HALF", (4, 8), (8, 1)),
        ("y_ptr", "output", "HALF", (4, 8), (8, 1)),
    ],
    # In the order of the list that was joined: its ports are numbers, which a dump sorts as text.
    "concatenate": [
        *((f"part{n}_ptr", "input", "HALF", (2, n, 8), (n * 8, 8, 1)) for n in range(1, 13)),
        ("joined_ptr", "output", "HALF", (2, 78, 8), (624, 8, 1)),
    ],
    "empty_tensors": [
        ("x_ptr", "input", "HALF", (0, 8, 16), (128, 16, 1)),
        ("y_ptr", "input", "HALF", (0, 8, 16), (128, 16, 1)),
        ("z_ptr", "output", "HALF", (0, 8, 16), (128, 16, 1)),
    ],
    "unusual_strides": [
        ("broadcast_ptr", "input", "HALF", (4, 8, 16), (2**40, 0, 1)),
        ("aligned_ptr", "input", "HALF", (4, 8, 16), (128, 16, 1)),
        ("z_ptr", "output", "HALF", (4, 8, 16), (128, 16, 1)),
    ],
}

# Graph → the uids that its builder sets.
UIDS = {
    "conv_all_uids": {"x_ptr": 11, "w_ptr": 12, "bias_ptr": 13, "y_ptr": 14},
    "conv_some_uids": {"x_ptr": 11, "w_ptr": 12, "y_ptr": 14},
    "unusual_uids": {"a_ptr": 0, "b_ptr": -7, "bias_ptr": 2**62, "y_ptr": -(2**63)},
    "name_like_a_uid": {"b_ptr": 4},
    "same_name_and_uids": {"x_ptr": 1, "x_2_ptr": 2, "x_3_ptr": 3},
    "sdpa_ragged_uids": {"q_ptr": 101, "o_ptr": 104, "q_offsets_ptr": 107, "kv_offsets_ptr": 108},
}
