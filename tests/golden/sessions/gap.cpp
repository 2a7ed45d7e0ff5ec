// gap MODEL SESSION FIRST END TOKEN...: the tokens are computed, positions FIRST to END removed, the sequence saved;
// then the 12 likeliest tokens that follow are printed.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

int main(int argc, char ** argv) {
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 256;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = GGML_TYPE_F32;
    llama_context * ctx = llama_init_from_model(model, params);
    std::vector<llama_token> ids;
    for (int i = 5; i < argc; i++) {
        ids.push_back(atoi(argv[i]));
    }
    llama_decode(ctx, llama_batch_get_one(ids.data(), ids.size()));
    const int first = atoi(argv[3]), end = atoi(argv[4]);
    llama_memory_seq_rm(llama_get_memory(ctx), 0, first, end);
    std::vector<llama_token> left(ids);
    left.erase(left.begin() + first, left.begin() + end);
    llama_state_seq_save_file(ctx, argv[2], 0, left.data(), left.size());
    // the last token again, as whoever goes on from the file must
    llama_memory_seq_rm(llama_get_memory(ctx), 0, (int) ids.size() - 1, -1);
    llama_token token = ids.back();
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (int i = 0; i < 12; i++) {
        llama_decode(ctx, llama_batch_get_one(&token, 1));
        const float * logits = llama_get_logits_ith(ctx, -1);
        token = 0;
        for (int j = 1; j < n_vocab; j++) {
            if (logits[j] > logits[token]) {
                token = j;
            }
        }
        printf("%d ", token);
    }
    printf("\n");
}
