/* The part of the driver's interface that is called: DevExplorer lists devices with it, torch looks functions up by name. libcuda.so.1 is
 * an empty library that leads here, so that both interfaces share one state. Codes are CUresult's, which agree with the runtime's. */
#include "standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define NOT_STARTED 3
#define NO_SUCH_FUNCTION 500
#define CUAPI API int

#define STARTED do { if (!started()) return NOT_STARTED; } while (0)
#define DEVICE(device) do { STARTED; if ((device) < 0 || (device) >= visible_count) return BAD_DEVICE; } while (0)

/* Contexts are numbers: primary ones, one for each device. */
static void *context_of(int device) { return (void *)(uintptr_t)(0x1000 + device); }

CUAPI cuInit(unsigned flags) { (void)flags; return start(); }
CUAPI cuDriverGetVersion(int *version) { *version = cuda_of_driver(); return 0; }

CUAPI cuDeviceGetCount(int *count) {
    STARTED;
    const int code = start();
    *count = code ? 0 : visible_count;
    return code;
}

CUAPI cuDeviceGet(int *to, int ordinal) { DEVICE(ordinal); *to = ordinal; return 0; }

CUAPI cuDeviceGetName(char *to, int size, int device) {
    DEVICE(device);
    snprintf(to, (size_t)size, "%s", model_at(device)->name);
    return 0;
}

CUAPI cuDeviceTotalMem_v2(size_t *bytes, int device) { DEVICE(device); *bytes = bytes_of(device); return 0; }
CUAPI cuDeviceGetAttribute(int *value, int attribute, int device) { DEVICE(device); *value = attribute_of(device, attribute); return 0; }
CUAPI cuDeviceGetUuid_v2(void *to, int device) { DEVICE(device); card_uuid(visible_cards[device], to); return 0; }
CUAPI cuDeviceGetUuid(void *to, int device) { return cuDeviceGetUuid_v2(to, device); }

CUAPI cuDeviceComputeCapability(int *major, int *minor, int device) {
    DEVICE(device);
    *major = model_at(device)->major;
    *minor = model_at(device)->minor;
    return 0;
}

CUAPI cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    DEVICE(device);
    *flags = 0;
    *active = has_context(device);
    return 0;
}

CUAPI cuDevicePrimaryCtxRetain(void **context, int device) {
    DEVICE(device);
    *context = context_of(device);
    return device_ready(device, CALL_ANY);
}

CUAPI cuDevicePrimaryCtxRelease_v2(int device) { DEVICE(device); return 0; }

CUAPI cuCtxGetCurrent(void **context) {
    STARTED;
    *context = has_context(current_device) ? context_of(current_device) : NULL;
    return 0;
}

CUAPI cuCtxSetCurrent(void *context) {
    STARTED;
    if (context) current_device = (int)((uintptr_t)context - 0x1000);
    return 0;
}

CUAPI cuCtxGetDevice(int *device) { STARTED; *device = current_device; return 0; }
CUAPI cuGetErrorString(int code, const char **to) { *to = error_text(code); return 0; }
CUAPI cuGetErrorName(int code, const char **to) { *to = error_name(code); return 0; }

/* --- functions by name ------------------------------------------------------------------------------------------------- */

static int not_implemented(void) {
    say("not implemented", "a function of the driver that was looked up by name");
    return NOT_IMPLEMENTED;
}

CUAPI cuGetProcAddress_v2(const char *name, void **to, int version, unsigned long long flags, int *status) {
    char newer[200];
    (void)version, (void)flags;
    snprintf(newer, sizeof newer, "%s_v2", name);
    void *self = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
    *to = self ? dlsym(self, newer) : NULL;
    if (self && !*to) *to = dlsym(self, name);
    if (self) dlclose(self);
    if (status) *status = *to ? 0 : 1;
    return *to ? 0 : NO_SUCH_FUNCTION;
}

CUAPI cuGetProcAddress(const char *name, void **to, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, to, version, flags, NULL);
}

/* torch takes a failure here for a broken driver: a function that refuses is what older drivers give, too. */
API cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **to, unsigned version, unsigned long long flags,
                                                 enum cudaDriverEntryPointQueryResult *status) {
    if (cuGetProcAddress_v2(name, to, (int)version, flags, NULL)) *to = (void *)not_implemented;
    if (status) *status = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

API cudaError_t cudaGetDriverEntryPoint(const char *name, void **to, unsigned long long flags,
                                        enum cudaDriverEntryPointQueryResult *status) {
    return cudaGetDriverEntryPointByVersion(name, to, CUDART_VERSION, flags, status);
}
