"""The arguments of each real file, checked by eye: name, uid, role, data type, alignment."""

from __future__ import annotations

EXPECTED = {
    "cudnn-9.19-sm90/layernorm.plan": """
        x_ptr 1 input BFLOAT16 16
        scale_ptr 2 input FLOAT 16
        bias_ptr 3 input FLOAT 16
        y_ptr 5 output BFLOAT16 16
        mean_ptr 6 output FLOAT 16
        inv_variance_ptr 7 output FLOAT 16
        eps 4 scalar FLOAT 1
    """,
    "cudnn-9.19-sm90/matmul_bias_relu.plan": """
        a_ptr 1 input BFLOAT16 16
        b_ptr 2 input BFLOAT16 16
        in_1_ptr 3 input BFLOAT16 16
        out_0_ptr 6 output BFLOAT16 16
    """,
    "cudnn-9.19-sm90/scale_by_value.plan": """
        in_0_ptr 1 input BFLOAT16 16
        out_0_ptr 3 output BFLOAT16 16
        alpha 2 scalar FLOAT 1
    """,
    "cudnn-9.19-sm90/sdpa_dense.plan": """
        q_ptr 1 input BFLOAT16 16
        k_ptr 2 input BFLOAT16 16
        v_ptr 3 input BFLOAT16 16
        o_ptr 4 output BFLOAT16 16
        stats_ptr 5 output FLOAT 16
    """,
    "cudnn-9.19-sm90/sdpa_thd.plan": """
        q_ptr 1 input BFLOAT16 16
        k_ptr 2 input BFLOAT16 16
        v_ptr 3 input BFLOAT16 16
        seq_len_q_ptr 9 input INT32 4
        seq_len_kv_ptr 10 input INT32 4
        q_ragged_offset_ptr 4 input INT64 8
        k_ragged_offset_ptr 5 input INT64 8
        v_ragged_offset_ptr 6 input INT64 8
        o_ragged_offset_ptr 7 input INT64 8
        stats_ragged_offset_ptr 8 input INT64 8
        o_ptr 11 output BFLOAT16 16
        stats_ptr 12 output FLOAT 16
    """,
    "cudnn-9.27-sm90/matmul_override.plan": """
        a_ptr 1 input BFLOAT16 16
        b_ptr 2 input BFLOAT16 16
        out_0_ptr 4 output BFLOAT16 16
    """,
    "cudnn-9.27-sm90/scale_by_value.plan": """
        in_0_ptr 1 input BFLOAT16 16
        out_0_ptr 3 output BFLOAT16 16
        alpha 2 scalar FLOAT 1
    """,
    "cudnn-9.27-sm90/sdpa_infer.plan": """
        q_ptr 1 input BFLOAT16 16
        k_ptr 2 input BFLOAT16 16
        v_ptr 3 input BFLOAT16 16
        o_ptr 4 output BFLOAT16 16
    """,
    "cudnn-9.27-sm90/sdpa_override.plan": """
        q_ptr 1 input BFLOAT16 16
        k_ptr 2 input BFLOAT16 16
        v_ptr 3 input BFLOAT16 16
        o_ptr 4 output BFLOAT16 16
        stats_ptr 5 output FLOAT 16
    """,
    "cudnn-9.27-sm90/sdpa_thd.plan": """
        q_ptr 1 input BFLOAT16 16
        k_ptr 2 input BFLOAT16 16
        v_ptr 3 input BFLOAT16 16
        seq_len_q_ptr 9 input INT32 4
        seq_len_kv_ptr 10 input INT32 4
        q_ragged_offset_ptr 4 input INT64 8
        k_ragged_offset_ptr 5 input INT64 8
        v_ragged_offset_ptr 6 input INT64 8
        o_ragged_offset_ptr 7 input INT64 8
        stats_ragged_offset_ptr 8 input INT64 8
        o_ptr 11 output BFLOAT16 16
        stats_ptr 12 output FLOAT 16
    """,
    "frontend-1.18/layernorm.plan": """
        x_ptr 3 input BFLOAT16 16
        scale_ptr 2 input FLOAT 16
        bias_ptr 1 input FLOAT 16
        y_ptr 7 output BFLOAT16 16
        mean_ptr 6 output FLOAT 16
        inv_variance_ptr 5 output FLOAT 16
        epsilon 4 scalar FLOAT 1
    """,
    "structure-v2/autoname_nouid.json": """
        a_ptr 2 input BFLOAT16 16
        b_ptr 1 input BFLOAT16 16
        c_ptr 3 output BFLOAT16 16
        out_0_ptr 4 output BFLOAT16 16
    """,
    "structure-v2/batchnorm_peer.json": """
        x_ptr 1 input BFLOAT16 16
        sc_ptr 2 input FLOAT 16
        bi_ptr 3 input FLOAT 16
        rm_ptr 4 input FLOAT 16
        rv_ptr 5 input FLOAT 16
        peer0_ptr 50 input FLOAT 16
        peer1_ptr 51 input FLOAT 16
        y_ptr 12 output BFLOAT16 16
        mean_ptr 11 output BFLOAT16 16
        inv_variance_ptr 10 output BFLOAT16 16
        next_running_mean_ptr 9 output BFLOAT16 16
        next_running_var_ptr 8 output BFLOAT16 16
        eps 6 scalar FLOAT 1
        mom 7 scalar FLOAT 1
    """,
    "structure-v2/block_scale_quantize.json": """
        x_ptr 1 input BFLOAT16 16
        y_ptr 2 output FP4_E2M1 16
        scale_ptr 3 output FP8_E4M3 16
    """,
    "structure-v2/conv_uid0_neg.json": """
        x_ptr 5 input HALF 16
        w_ptr -7 input HALF 16
        y_ptr 0 output HALF 16
    """,
    "structure-v2/dynamic.json": """
        a_ptr 1 input BFLOAT16 16
        b_ptr 2 input BFLOAT16 16
        c_ptr 4 output BFLOAT16 16
    """,
    "structure-v2/layernorm.json": """
        x_ptr 1 input BFLOAT16 16
        scale_ptr 2 input FLOAT 16
        bias_ptr 3 input FLOAT 16
        y_ptr 7 output BFLOAT16 16
        mean_ptr 6 output FLOAT 16
        inv_variance_ptr 5 output FLOAT 16
        eps 4 scalar FLOAT 1
    """,
    "structure-v2/moe.json": """
        token_ptr 20 input BFLOAT16 16
        weight_ptr 21 input BFLOAT16 16
        first_token_offset_ptr 22 input INT32 4
        output_ptr 100 output BFLOAT16 16
    """,
    "structure-v2/names.json": """
        class_ptr 10 input BFLOAT16 16
        a_b_ptr 11 input BFLOAT16 16
        in_1_2_ptr 12 input BFLOAT16 16
        a_b_2_ptr 13 input BFLOAT16 16
        a_b_3_ptr 14 input BFLOAT16 16
        a_b_4_ptr 15 input BFLOAT16 16
        t0x_ptr 16 input BFLOAT16 16
        in_1_7_ptr 17 input BFLOAT16 16
        in_1_8_ptr 18 input BFLOAT16 16
        self_ptr 19 input BFLOAT16 16
        q_ptr 20 input BFLOAT16 16
        q_2_ptr 21 input BFLOAT16 16
        none_ptr 22 input BFLOAT16 16
        in_1_13_ptr 23 input BFLOAT16 16
        ws_ptr 24 input BFLOAT16 16
        handle_ptr 25 input BFLOAT16 16
        out_0_ptr 31 output BFLOAT16 16
    """,
    "structure-v2/override.json": """
        a_ptr 1 input BFLOAT16 16
        b_ptr 2 input BFLOAT16 16
        c_ptr 4 output BFLOAT16 16
    """,
    "structure-v2/paged.json": """
        q_ptr 1 input HALF 16
        container_k_ptr 2 input HALF 16
        container_v_ptr 3 input HALF 16
        seq_q_ptr 6 input INT32 4
        seq_kv_ptr 7 input INT32 4
        page_table_k_ptr 4 input INT32 4
        page_table_v_ptr 5 input INT32 4
        ragged_ptr 8 input INT32 4
        o_ptr 20 output HALF 16
    """,
    "structure-v2/pbv_f_rt.json": """
        x_ptr 1 input BFLOAT16 16
        out_0_ptr 3 output BFLOAT16 16
    """,
    "structure-v2/pbv_i40.json": """
        x_ptr 1 input BFLOAT16 16
        out_0_ptr 3 output BFLOAT16 16
    """,
    "structure-v2/pbv_runtime.json": """
        x_ptr 1 input BFLOAT16 16
        out_0_ptr 3 output BFLOAT16 16
        alpha 2 scalar FLOAT 1
    """,
    "structure-v2/reshape.json": """
        x_ptr 1 input BFLOAT16 16
        y_ptr 2 output BFLOAT16 16
    """,
    "structure-v2/same_tensor_twice.json": """
        a_ptr 1 input HALF 16
        b_ptr 2 input HALF 16
        out_0_ptr 4 output HALF 16
    """,
    "structure-v2/sdpa_bwd.json": """
        q_ptr 0 input BFLOAT16 16
        k_ptr 1 input BFLOAT16 16
        v_ptr 2 input BFLOAT16 16
        o_ptr 3 input BFLOAT16 16
        do_ptr 9 input BFLOAT16 16
        lse_ptr 8 input FLOAT 16
        dq_ptr 10 output BFLOAT16 16
        dk_ptr 11 output BFLOAT16 16
        dv_ptr 12 output BFLOAT16 16
    """,
    "structure-v2/stride64_bcast0.json": """
        a_ptr 1 input BFLOAT16 16
        b_ptr 2 input BFLOAT16 16
        c_ptr 4 output BFLOAT16 16
    """,
    "structure-v2/zero_dim.json": """
        a_ptr 1 input BFLOAT16 2
        b_ptr 2 input BFLOAT16 2
        c_ptr 4 output BFLOAT16 2
    """,
}
