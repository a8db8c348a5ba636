/* Streams and events. Everything is done when its call returns, so a stream is never behind; events say when. */
#include "standin.h"

#include <stdlib.h>
#include <time.h>

typedef struct {
    int device, priority;
    unsigned flags;
    unsigned long long id;
} Stream;

typedef struct {
    struct timespec at;
    int device, recorded, timed;
} Event;

/* The default streams have no object; their numbers are 0, 1 and 2. */
static int is_default(cudaStream_t stream) { return (uintptr_t)stream <= 2; }

static int device_of(cudaStream_t stream) { return is_default(stream) ? current_device : ((Stream *)stream)->device; }

/* Ready for a call on the device of a stream, which need not be the current one. */
#define READY_ON(stream, kind) do { const int ready_ = device_ready(device_of(stream), kind); if (ready_) return done(ready_); } while (0)

/* --- streams ----------------------------------------------------------------------------------------------------------- */

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *to, unsigned flags, int priority) {
    static _Atomic unsigned long long next_id = 3;
    READY(CALL_ANY);
    Stream *stream = malloc(sizeof *stream);
    if (!stream) RETURN(OUT_OF_MEMORY);
    *stream = (Stream){current_device, priority, flags, next_id++};
    *to = (cudaStream_t)stream;
    return cudaSuccess;
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *to, unsigned flags) { return cudaStreamCreateWithPriority(to, flags, 0); }
API cudaError_t cudaStreamCreate(cudaStream_t *to) { return cudaStreamCreateWithPriority(to, 0, 0); }

API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (is_default(stream)) RETURN(BAD_HANDLE);
    free(stream);
    return cudaSuccess;
}

API cudaError_t cudaStreamSynchronize(cudaStream_t stream) { READY_ON(stream, CALL_SYNC); return cudaSuccess; }
API cudaError_t cudaStreamQuery(cudaStream_t stream) { READY_ON(stream, CALL_SYNC); return cudaSuccess; }

API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)event, (void)flags;
    READY_ON(stream, CALL_EVENT);
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    READY(CALL_ANY);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}

API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    *priority = is_default(stream) ? 0 : ((Stream *)stream)->priority;
    return cudaSuccess;
}

API cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
    *flags = is_default(stream) ? 0 : ((Stream *)stream)->flags;
    return cudaSuccess;
}

API cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
    *id = is_default(stream) ? (uintptr_t)stream : ((Stream *)stream)->id;
    return cudaSuccess;
}

API cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) { *device = device_of(stream); return cudaSuccess; }

API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    READY_ON(stream, CALL_LAUNCH);
    function(data);
    return cudaSuccess;
}

API cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void *data, unsigned flags) {
    (void)flags;
    READY_ON(stream, CALL_LAUNCH);
    function(stream, cudaSuccess, data);
    return cudaSuccess;
}

/* Graphs are not recorded: no stream ever captures, and to begin is not implemented. */
API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    (void)stream;
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                         cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                         size_t *count) {
    (void)stream, (void)graph, (void)nodes, (void)edges, (void)count;
    if (status) *status = cudaStreamCaptureStatusNone;
    if (id) *id = 0;
    return cudaSuccess;
}

API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { (void)mode; return cudaSuccess; }

/* --- events ------------------------------------------------------------------------------------------------------------ */

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *to, unsigned flags) {
    READY(CALL_EVENT);
    Event *event = calloc(1, sizeof *event);
    if (!event) RETURN(OUT_OF_MEMORY);
    event->device = current_device;
    event->timed = !(flags & cudaEventDisableTiming);
    *to = (cudaEvent_t)event;
    return cudaSuccess;
}

API cudaError_t cudaEventCreate(cudaEvent_t *to) { return cudaEventCreateWithFlags(to, 0); }
API cudaError_t cudaEventDestroy(cudaEvent_t event) { free(event); return cudaSuccess; }

API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    Event *at = (Event *)event;
    (void)flags;
    READY_ON(stream, CALL_EVENT);
    if (device_of(stream) != at->device) RETURN(BAD_HANDLE);
    clock_gettime(CLOCK_MONOTONIC, &at->at);
    at->recorded = 1;
    return cudaSuccess;
}

API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaEventRecordWithFlags(event, stream, 0); }
API cudaError_t cudaEventQuery(cudaEvent_t event) { RETURN(device_ready(((Event *)event)->device, CALL_SYNC)); }
API cudaError_t cudaEventSynchronize(cudaEvent_t event) { RETURN(device_ready(((Event *)event)->device, CALL_SYNC)); }

API cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t first, cudaEvent_t last) {
    const Event *from = (Event *)first, *to = (Event *)last;
    if (!from->recorded || !to->recorded || !from->timed || !to->timed) RETURN(BAD_HANDLE);
    *milliseconds = (float)((double)(to->at.tv_sec - from->at.tv_sec) * 1e3 + (double)(to->at.tv_nsec - from->at.tv_nsec) / 1e6);
    return cudaSuccess;
}
