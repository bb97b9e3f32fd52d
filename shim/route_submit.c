/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_submit - the bodies of the entry points that submit work: always the driver's own call, with
 * submit.h around it.
 * How:        a body per row of submit_list.h; three by hand below.
 */
#include "shim/drv.h"
#include "shim/graph.h"
#include "shim/log.h"
#include "shim/peer_copy.h"
#include "shim/peer_trail.h"
#include "shim/route.h"
#include "shim/submit.h"
#include "shim/submit_list.h"
#include "shim/submit_rule.h"

/*
 * A row's far copy, if it has one, goes before the real call. A call that finds no memory has submitted nothing: stream-ordered
 * allocations, a kernel's local memory.
 */
#define X(symbol, params, args, place, rule, ...)                                                  \
    CUresult cup_route_##symbol params                                                             \
    {                                                                                              \
        const cup_place_t at = (place);                                                            \
        cup_call_t call;                                                                           \
        CUresult result;                                                                           \
        int tries = 0;                                                                             \
                                                                                                   \
        do {                                                                                       \
            cup_submit_begin(&call, at, (rule));                                                   \
            __VA_OPT__(if (!(cup_peer_is_apart() && (__VA_ARGS__)))) result = cup_drv.symbol args; \
            cup_submit_end(&call, result);                                                         \
            cup_peer_trail_leave(at, result);                                                      \
        } while (result == CUDA_ERROR_OUT_OF_MEMORY && tries++ == 0 && cup_route_rescue());        \
        return result;                                                                             \
    }
CUP_SUBMIT_LIST(X)
#undef X

#define X(symbol, params, args)        \
    CUresult cup_route_##symbol params \
    {                                  \
        cup_submit_unknown();          \
        return cup_drv.symbol args;    \
    }
CUP_SUBMIT_DOUBT_LIST(X)
#undef X

void cup_route_doubt(const char *name)
{
    if (name)
        cup_log(CUP_LOG_INFO,
                "%s is not known here: each call waits for what was freed, and counts as work on all streams",
                name);
    cup_submit_unknown();
}

/* The types of the rows are those of the header. OpenGL's and EGL's are not in cuda.h: tests/lint/interop.sh. */
#define X(symbol, ...) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), __typeof__(cup_route_##symbol)), #symbol);
CUP_HOOK_LIST(X)
CUP_SUBMIT_CUDA_LIST(X)
CUP_SUBMIT_HAND_LIST(X)
CUP_SUBMIT_DOUBT_CUDA_LIST(X)
#undef X

/* ---- launches with attributes ---- */

#define ATTRS_MAX 64 /* several of each kind that there is (CUDA 13.0: 17) */

typedef CUresult (*launch_t)(const CUlaunchConfig *, CUfunction, void **, void **);

/*
 * The copy of config without the attribute that lets the launch start early. That attribute only
 * permits: without it the launch means the same. The event of a programmatic launch stays: without it
 * the program's event would not be recorded, and it lets later work of others start early, not this
 * launch.
 */
static void copy_plain(const CUlaunchConfig *config, CUlaunchConfig *out_config, CUlaunchAttribute *out_attrs)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < config->numAttrs; i++)
        if (!cup_rule_is_programmatic(&config->attrs[i]))
            out_attrs[kept++] = config->attrs[i];
    *out_config = *config;
    out_config->attrs = out_attrs;
    out_config->numAttrs = kept;
}

/* Out of line: its frame is 5 KiB, which other launches need not have. */
__attribute__((noinline)) static CUresult launch_plain(launch_t real, const CUlaunchConfig *config,
                                                       CUfunction f, void **params, void **extra)
{
    CUlaunchAttribute attrs[ATTRS_MAX];
    CUlaunchConfig plain;

    copy_plain(config, &plain, attrs);
    return real(&plain, f, params, extra);
}

static CUresult launch_ex(launch_t real, cup_place_t place, const CUlaunchConfig *config, CUfunction f,
                          void **params, void **extra)
{
    unsigned rule = cup_rule_launch(config);
    bool is_long = rule == CUP_SUBMIT_PROGRAMMATIC && config->numAttrs > ATTRS_MAX;
    cup_call_t call;
    CUresult result;

    if (is_long)
        cup_submit_doubt(); /* too many to copy: nothing that it could run ahead of may be left */
    cup_submit_begin(&call, place, rule);
    if (is_long)
        call.must_be_plain = false;
    if (call.must_be_plain)
        result = launch_plain(real, config, f, params, extra);
    else
        result = real(config, f, params, extra);
    cup_submit_end(&call, result);
    return result;
}

CUresult cup_route_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                                    void **extra)
{
    return launch_ex(cup_drv.cuLaunchKernelEx, cup_place_launch(config, false), config, f, kernelParams,
                     extra);
}

CUresult cup_route_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                                         void **extra)
{
    return launch_ex(cup_drv.cuLaunchKernelEx_ptsz, cup_place_launch(config, true), config, f, kernelParams,
                     extra);
}

/* ---- one launch on several devices ---- */

#define DEVICES_MAX 64 /* what the driver can see */

/* Every stream passes the newest point, as if something small were submitted to it. */
static void visit_streams(const CUDA_LAUNCH_PARAMS *launches, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        cup_call_t call;

        cup_submit_begin(&call, CUP_ON(launches[i].hStream), CUP_SUBMIT_PLAIN);
        cup_submit_end(&call, CUDA_SUCCESS);
    }
}

/*
 * A thread has one call word, which says "any stream" for this call. The other streams are visited before,
 * so that they wait for what they must.
 */
CUresult cup_route_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList,
                                                        unsigned int numDevices, unsigned int flags)
{
    bool is_sound = launchParamsList && numDevices > 0 && numDevices <= DEVICES_MAX;
    cup_call_t call;
    CUresult result;

    if (!is_sound) /* the driver refuses */
        return cup_drv.cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags);
    visit_streams(launchParamsList + 1, numDevices - 1);
    cup_submit_begin(&call, CUP_ON(launchParamsList[0].hStream), CUP_SUBMIT_EVERYWHERE);
    result = cup_drv.cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags);
    cup_submit_end(&call, result);
    return result;
}
