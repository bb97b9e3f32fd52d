/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_named - the functions of preload/cupola.h, which says what they do.
 * What:       which blocks can be published, in which state of the process, and the codes.
 * Threads:    any thread.
 */
#ifndef CUP_SHIM_ROUTE_NAMED_H
#define CUP_SHIM_ROUTE_NAMED_H
#include "shim/cuda_abi.h"
#include "shim/named.h"

CUresult cup_route_named_publish(const char *name, CUdeviceptr pointer, uint32_t flags, int64_t group);
CUresult cup_route_named_unpublish(const char *name);
CUresult cup_route_named_open(const char *name, uint32_t flags, int64_t owner, cup_named_info_t *out_info);
CUresult cup_route_named_list(void (*found)(const cup_named_info_t *info, void *arg), void *arg);

#endif /* CUP_SHIM_ROUTE_NAMED_H */
