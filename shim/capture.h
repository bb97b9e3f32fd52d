/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture - which captures are in progress, because a record on a context invalidates them.
 * What:       the set of capturing streams of the process. Begin hooks enter it before the real call, so
 *             that no record can slip in between; End and Destroy hooks leave it when the capture has really
 *             ended.
 * Quirk:      cuCtxRecordEvent invalidates every capture of the context, in every mode, from any thread,
 *             also under an exchange to relaxed mode (measured, driver 580; tests/gpu/quirks.c).
 * Threads:    any thread. cup_capture_hold() is shared by recorders; a Begin waits for those that hold it.
 */
#ifndef CUP_SHIM_CAPTURE_H
#define CUP_SHIM_CAPTURE_H
#include "shim/cuda_abi.h"
#include <stdbool.h>

/*
 * True: no capture is in progress and none begins before cup_capture_put(). False: one is (or may be), and
 * nothing is held. Takes no lock that a driver call is made under, other than records.
 */
bool cup_capture_hold(void);
void cup_capture_put(void);

/* Around the real Begin: before it, and after it with whether it succeeded. */
void cup_capture_begin(CUstream stream);
void cup_capture_began(CUstream stream, bool is_success);

/* After the real End, and before the real Destroy of a stream. */
void cup_capture_ended(CUstream stream, CUresult result);
void cup_capture_destroyed(CUstream stream);

#endif /* CUP_SHIM_CAPTURE_H */
