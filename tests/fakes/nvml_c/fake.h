/* What the parts of the fake driver share: control.c holds the cards and what tests do to them, the others answer like NVML.
 * Codes and numbers are NVML's own (nvml.h of NVIDIA, as the package nvidia-ml-py publishes them). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ledger.h"
#include "models.h"

#define API __attribute__((visibility("default")))
#define MOST_INSTANCES 7
#define MOST_PROCESSES 64
#define MOST_LINKS 18
#define KIB 1024ULL

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

#define FUNCTIONS(X)                                                                                                                   \
    X(nvmlInit_v2) X(nvmlInitWithFlags) X(nvmlShutdown) X(nvmlSystemGetDriverVersion) X(nvmlSystemGetNVMLVersion)                      \
    X(nvmlSystemGetCudaDriverVersion) X(nvmlSystemGetCudaDriverVersion_v2) X(nvmlSystemGetProcessName) X(nvmlDeviceGetCount_v2)        \
    X(nvmlDeviceGetHandleByIndex_v2) X(nvmlDeviceGetHandleByUUID) X(nvmlDeviceGetName) X(nvmlDeviceGetUUID) X(nvmlDeviceGetPciInfo_v3) \
    X(nvmlDeviceGetSerial) X(nvmlDeviceGetBoardPartNumber) X(nvmlDeviceGetVbiosVersion) X(nvmlDeviceGetBrand)                          \
    X(nvmlDeviceGetArchitecture) X(nvmlDeviceGetCudaComputeCapability) X(nvmlDeviceGetNumGpuCores) X(nvmlDeviceGetMemoryBusWidth)      \
    X(nvmlDeviceGetAttributes_v2) X(nvmlDeviceGetMinorNumber) X(nvmlDeviceGetIndex) X(nvmlDeviceGetMemoryInfo)                         \
    X(nvmlDeviceGetMemoryInfo_v2) X(nvmlDeviceGetUtilizationRates) X(nvmlDeviceGetTemperature) X(nvmlDeviceGetTemperatureV)            \
    X(nvmlDeviceGetPowerUsage) X(nvmlDeviceGetClockInfo) X(nvmlDeviceGetEncoderUtilization) X(nvmlDeviceGetDecoderUtilization)         \
    X(nvmlDeviceGetFanSpeed) X(nvmlDeviceGetNumFans) X(nvmlDeviceGetFanSpeed_v2) X(nvmlDeviceGetPerformanceState)                      \
    X(nvmlDeviceGetEnforcedPowerLimit) X(nvmlDeviceGetPowerManagementLimit) X(nvmlDeviceGetPowerManagementLimitConstraints)            \
    X(nvmlDeviceGetPowerManagementDefaultLimit) X(nvmlDeviceGetTotalEnergyConsumption) X(nvmlDeviceGetCurrentClocksEventReasons)       \
    X(nvmlDeviceGetCurrentClocksThrottleReasons) X(nvmlDeviceGetMaxClockInfo) X(nvmlDeviceGetApplicationsClock)                        \
    X(nvmlDeviceGetTemperatureThreshold) X(nvmlDeviceGetCurrPcieLinkGeneration) X(nvmlDeviceGetMaxPcieLinkGeneration)                  \
    X(nvmlDeviceGetCurrPcieLinkWidth) X(nvmlDeviceGetMaxPcieLinkWidth) X(nvmlDeviceGetPcieReplayCounter)                               \
    X(nvmlDeviceGetPcieThroughput) X(nvmlDeviceGetFieldValues) X(nvmlDeviceGetEccMode) X(nvmlDeviceGetTotalEccErrors)                  \
    X(nvmlDeviceGetMemoryErrorCounter) X(nvmlDeviceGetRemappedRows) X(nvmlDeviceGetRetiredPages) X(nvmlDeviceGetRetiredPages_v2)       \
    X(nvmlDeviceGetRetiredPagesPendingStatus) X(nvmlDeviceGetComputeMode) X(nvmlDeviceGetPersistenceMode)                              \
    X(nvmlDeviceGetAccountingMode) X(nvmlDeviceGetDisplayActive) X(nvmlDeviceGetDisplayMode) X(nvmlDeviceGetMigMode)                   \
    X(nvmlDeviceGetMaxMigDeviceCount) X(nvmlDeviceGetMigDeviceHandleByIndex) X(nvmlDeviceIsMigDeviceHandle)                            \
    X(nvmlDeviceGetGpuInstanceId) X(nvmlDeviceGetComputeInstanceId) X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)                    \
    X(nvmlDeviceGetNvLinkState) X(nvmlDeviceGetNvLinkVersion) X(nvmlDeviceGetNvLinkRemotePciInfo_v2) X(nvmlDeviceGetNvLinkCapability)  \
    X(nvmlDeviceGetTopologyCommonAncestor) X(nvmlDeviceGetP2PStatus) X(nvmlDeviceGetCpuAffinity) X(nvmlDeviceGetNumaNodeId)            \
    X(nvmlDeviceGetMemoryAffinity) X(nvmlDeviceGetComputeRunningProcesses_v2) X(nvmlDeviceGetComputeRunningProcesses_v3)               \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2) X(nvmlDeviceGetGraphicsRunningProcesses_v3)                                            \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3) X(nvmlDeviceGetProcessUtilization)                                                   \
    X(nvmlDeviceGetNvLinkRemoteDeviceType) X(nvmlDeviceGetDriverModel) X(nvmlDeviceGetDriverModel_v2)

#define ENUMERATOR(name) F_##name,
typedef enum { FUNCTIONS(ENUMERATOR) FUNCTION_COUNT } Function;

typedef struct {
    const Model *model;
    int number; /* as it was added; its place in the list differs once an earlier one was removed */
    int listed, lost;
    unsigned born; /* session in which it was plugged in; 0: it was there from the start */
    int mig, instances, mig_generation;
    char name[96];
    int own_processes[2];
    int process_count[2];
    Process processes[2][MOST_PROCESSES]; /* compute, graphics: when a test has set them */
} Card;

typedef struct {
    int card, instance; /* -1: the card itself */
    unsigned session;
    int mig_generation;
} Handle;

extern Card cards[MOST_CARDS];
extern int card_count;

/* Count, wait, hang, fail: the way into every function. `card` is -1 where there is none. */
int enter(Function function, int card);
/* The same for a function that takes a handle. */
int enter_device(Function function, const Handle *handle, Card **card, int *instance);
/* For the second handle of a call. */
int resolve(const Handle *handle, Card **card, int *instance);
/* Fallen off the bus: so a test says, or the ledger. */
int is_lost(const Card *card);
int field_fault(int card, unsigned field);
/* How many entries more than there is room for are written behind the end of every list. */
int overrun(void);
int session_start(void);
int session_end(void);
int listed_count(void);
Card *listed_card(unsigned index);
int index_of(const Card *card);
Handle *handle_of(const Card *card, int instance);

/* Seconds; values are functions of it. */
double now_s(void);
/* 0 to 1: how busy the card is, and its integral over time. */
double busy(const Card *card);
double busy_integral(const Card *card);
