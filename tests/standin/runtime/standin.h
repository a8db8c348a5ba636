/* What the parts of the stand-in's CUDA runtime share. It is a libcudart.so.13, and the part of libcuda.so.1 that torch calls, whose cards
 * are host memory: devices.c lists them, memory.c allocates and copies, streams.c orders, kernels.c launches, faults.c fails on demand,
 * driver.c is the driver's interface. Any thread.
 *
 * Environment, read once by each process:
 *   FAKE_NVML_MODELS, FAKE_NVML_CARDS   the cards, as for the fake NVML (tests/fakes/nvml_c/control.c)
 *   FAKE_NVML_CUDA=12080                the CUDA of the driver; below 13000 it is too old for this runtime
 *   FAKE_CUDA_LEDGER=FILE               who uses what (tests/fakes/nvml_c/ledger.h); needed
 *   FAKE_CUDA_INIT=802                  what cuInit answers
 *   FAKE_CUDA_CONTEXT_MIB=512           what a context takes
 *   FAKE_CUDA_FAULTS=SPEC or /FILE      errors on demand (faults.c)
 *   FAKE_CUDA_LOG=FILE                  functions and kernels that were asked for and are not implemented
 *   CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER   as NVIDIA documents them */
#pragma once

#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#undef cudaStreamGetCaptureInfo /* the header names newer variants so */
#include <stddef.h>
#include <stdint.h>

#include "ledger.h"
#include "models.h"

/* What the map of versions does not name stays inside. */
#define API __attribute__((visibility("default")))

enum { /* driver_types.h has more */
    OUT_OF_MEMORY = cudaErrorMemoryAllocation,
    AFTER_FORK = cudaErrorInitializationError,
    NO_DEVICE = cudaErrorNoDevice,
    BAD_DEVICE = cudaErrorInvalidDevice,
    BAD_VALUE = cudaErrorInvalidValue,
    BAD_HANDLE = cudaErrorInvalidResourceHandle,
    NOT_IMPLEMENTED = cudaErrorNotSupported,
};

/* Calls of one kind fail together on demand. */
typedef enum { CALL_ANY, CALL_CONTEXT, CALL_MALLOC, CALL_COPY, CALL_LAUNCH, CALL_SYNC, CALL_EVENT, CALL_KINDS } CallKind;

/* --- devices.c */
extern int visible_count;             /* devices of this process, and which card each is */
extern int visible_cards[MOST_CARDS];
extern _Thread_local int current_device;
int start(void);                      /* cuInit: 0 or its error; once per process */
int started(void);
const Model *model_at(int device);
uint64_t bytes_of(int device);        /* what CUDA calls the device's memory */
int attribute_of(int device, int attribute);
int runtime_ready(void);              /* `start`, and that the driver is new enough */
int device_ready(int device, CallKind kind); /* all that a call on a device needs: its context is made, nothing broke it */
int has_context(int device);
cudaError_t done(int code);           /* remembers an error for cudaGetLastError */
#define RETURN(code) return done(code)
#define READY(kind) do { const int ready_ = device_ready(current_device, kind); if (ready_) return done(ready_); } while (0)

/* --- memory.c */
int make_context(int device);
int device_of_pointer(const void *pointer); /* -1: host memory that is pinned, -2: none of ours */

/* --- faults.c */
int fault(CallKind kind, int card);   /* the error that this call has to return, 0: none */
int is_sticky(int code);
const char *error_name(int code);
const char *error_text(int code);

/* --- kernels.c */
void say(const char *what, const char *name); /* once for each name, to FAKE_CUDA_LOG */
