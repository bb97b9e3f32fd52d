/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks_driver - the first door: exported cu* symbols, for programs that link with libcuda.
 * How:        a body per row; the decision is route.c's.
 */
#include "preload/hooks.h"

#define X(symbol, params, args, ...)    \
    CUresult symbol params              \
    {                                   \
        return cup_route_##symbol args; \
    }
CUP_HOOK_LIST(X)
CUP_SUBMIT_LIST(X)
CUP_SUBMIT_HAND_LIST(X)
CUP_SUBMIT_DOUBT_LIST(X)
CUP_COLLECT_LIST(X)
CUP_ASK_LIST(X)
CUP_WAIT_LIST(X)
CUP_WAIT_CONTEXT_LIST(X)
CUP_JOIN_LIST(X)
CUP_MANAGED_LIST(X)
CUP_RESCUE_LIST(X)
CUP_GRAPH_LIST(X)
CUP_QUERY_LIST(X)
#undef X
