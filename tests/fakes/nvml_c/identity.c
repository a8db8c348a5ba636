/* NVML itself, and what a card is. Names, structures, versions and codes here and beside are those of NVIDIA's nvml.h. Any thread.
 * Built with -DOLD_DRIVER the library lacks what drivers before about 2021 lack. */
#define _GNU_SOURCE
#include "answer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

int text(char *to, unsigned size, const char *from) {
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

long long unix_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* --- NVML itself ----------------------------------------------------------------------------------------------------- */

API int nvmlInit_v2(void) { ENTER(nvmlInit_v2); return session_start(); }
API int nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(nvmlInitWithFlags); return session_start(); }
API int nvmlShutdown(void) { ENTER(nvmlShutdown); return session_end(); }

API const char *nvmlErrorString(int code) {
    static const struct { int code; const char *words; } WORDS[] = {
        {0, "Success"}, {1, "Uninitialized"}, {2, "Invalid Argument"}, {3, "Not Supported"}, {4, "Insufficient Permissions"},
        {6, "Not Found"}, {9, "Driver Not Loaded"}, {10, "Timeout"}, {15, "GPU is lost"}, {25, "Argument Version Mismatch"}};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (WORDS[i].code == code) return WORDS[i].words;
    return "Unknown Error";
}

/* The driver that came with a CUDA: 570 with 12.8, 580 with 13.0. */
static const char *driver_version(void) { return cuda_of_driver() >= 13000 ? "580.95.05" : "570.172.08"; }

API int nvmlSystemGetDriverVersion(char *to, unsigned size) { ENTER(nvmlSystemGetDriverVersion); return text(to, size, driver_version()); }

API int nvmlSystemGetNVMLVersion(char *to, unsigned size) {
    ENTER(nvmlSystemGetNVMLVersion);
    char version[32];
    snprintf(version, sizeof version, "%d.%s", cuda_of_driver() / 1000, driver_version());
    return text(to, size, version);
}

API int nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER(nvmlSystemGetCudaDriverVersion);
    *version = cuda_of_driver();
    return SUCCESS;
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER(nvmlSystemGetCudaDriverVersion_v2);
    *version = cuda_of_driver();
    return SUCCESS;
}

API int nvmlSystemGetProcessName(unsigned pid, char *to, unsigned size) {
    ENTER(nvmlSystemGetProcessName);
    char path[64], name[256] = "";
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "r");
    if (!file) return NOT_FOUND;
    if (fgets(name, sizeof name, file)) name[strcspn(name, "\n")] = 0;
    fclose(file);
    return text(to, size, name);
}

/* Drivers for Linux have it and support it on no card. */
API int nvmlDeviceGetDriverModel(Device device, unsigned *current, unsigned *pending) {
    WHOLE(nvmlDeviceGetDriverModel);
    (void)current, (void)pending;
    return NOT_SUPPORTED;
}

API int nvmlDeviceGetDriverModel_v2(Device device, unsigned *current, unsigned *pending) {
    WHOLE(nvmlDeviceGetDriverModel_v2);
    (void)current, (void)pending;
    return NOT_SUPPORTED;
}

/* --- what a card is -------------------------------------------------------------------------------------------------- */

API int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(nvmlDeviceGetCount_v2); *count = (unsigned)listed_count(); return SUCCESS; }

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    const Card *card = listed_card(index);
    TRY(enter(F_nvmlDeviceGetHandleByIndex_v2, card ? card->number : -1));
    if (!card) return INVALID_ARGUMENT;
    if (is_lost(card)) return GPU_IS_LOST;
    *device = handle_of(card, -1);
    return SUCCESS;
}

static void write_uuid(const Card *card, int instance, char *to) {
    if (instance < 0) sprintf(to, "GPU-fa4e0000-c0de-4000-8000-%012x", card->number + 1);
    else sprintf(to, "MIG-fa4e0000-c0de-5000-8000-%06x%04x%02x", card->number + 1, card->mig_generation, instance);
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    ENTER(nvmlDeviceGetHandleByUUID);
    for (int i = 0; i < card_count; i++)
        for (int instance = -1; cards[i].listed && instance < cards[i].instances; instance++) {
            char own[96];
            write_uuid(&cards[i], instance, own);
            if (strcmp(own, uuid)) continue;
            if (is_lost(&cards[i])) return GPU_IS_LOST;
            *device = handle_of(&cards[i], instance);
            return SUCCESS;
        }
    return NOT_FOUND;
}

API int nvmlDeviceGetUUID(Device device, char *to, unsigned size) {
    CARD(nvmlDeviceGetUUID);
    char own[96];
    write_uuid(card, instance, own);
    return text(to, size, own);
}

API int nvmlDeviceGetName(Device device, char *to, unsigned size) {
    CARD(nvmlDeviceGetName);
    char name[128];
    snprintf(name, sizeof name, instance < 0 ? "%s" : "%s MIG 3g.71gb", card->name);
    return text(to, size, name);
}

unsigned bus_of(const Card *card) { return (unsigned)card_bus(card->number); }

void write_pci(PciInfo *info, unsigned bus, unsigned id) {
    *info = (PciInfo){.bus = bus & 0xff, .pci_device_id = id, .subsystem_id = 0x18be10de};
    snprintf(info->legacy, sizeof info->legacy, "0000:%02X:00.0", bus & 0xff);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", bus & 0xff);
}

API int nvmlDeviceGetPciInfo_v3(Device device, PciInfo *info) {
    CARD(nvmlDeviceGetPciInfo_v3);
    write_pci(info, bus_of(card), 0x233510deU);
    return SUCCESS;
}

API int nvmlDeviceGetSerial(Device device, char *to, unsigned size) {
    WHOLE(nvmlDeviceGetSerial);
    NEEDS(card->model->serial);
    char serial[30];
    snprintf(serial, sizeof serial, "16542230%05d", card->number + 1);
    return text(to, size, serial);
}

API int nvmlDeviceGetBoardPartNumber(Device device, char *to, unsigned size) {
    WHOLE(nvmlDeviceGetBoardPartNumber);
    NEEDS(card->model->part_number);
    return text(to, size, card->model->part_number);
}

API int nvmlDeviceGetVbiosVersion(Device device, char *to, unsigned size) {
    WHOLE(nvmlDeviceGetVbiosVersion);
    return text(to, size, card->model->vbios);
}

NUMBER(nvmlDeviceGetBrand, unsigned, 1, card->model->brand)
NUMBER(nvmlDeviceGetArchitecture, unsigned, 1, card->model->architecture)
NUMBER(nvmlDeviceGetMinorNumber, unsigned, 1, card->number)
NUMBER(nvmlDeviceGetIndex, unsigned, 1, index_of(card))
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, 1, 1)
NUMBER(nvmlDeviceGetComputeMode, unsigned, 1, 0)
NUMBER(nvmlDeviceGetAccountingMode, unsigned, 1, 0)
NUMBER(nvmlDeviceGetDisplayActive, unsigned, 1, card->model->display)
NUMBER(nvmlDeviceGetDisplayMode, unsigned, 1, card->model->display)
NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned, 1, card->model->bus_bits)
#ifndef OLD_DRIVER
NUMBER(nvmlDeviceGetNumGpuCores, unsigned, 1, card->model->cores)
#endif

API int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    CARD(nvmlDeviceGetCudaComputeCapability);
    *major = card->model->major;
    *minor = card->model->minor;
    return SUCCESS;
}

/* For a card without MIG NVML answers too: the SMs of the whole card. */
API int nvmlDeviceGetAttributes_v2(Device device, Attributes *to) {
    CARD(nvmlDeviceGetAttributes_v2);
    const unsigned parts = instance < 0 ? 1 : (unsigned)card->instances;
    *to = (Attributes){.sms = (unsigned)card->model->sms / parts, .copy = 3, .decoders = 7 / parts, .encoders = 0, .jpeg = 1, .ofa = 1,
                       .gpu_slices = instance < 0 ? 0 : 3, .compute_slices = instance < 0 ? 0 : 3,
                       .memory_mb = total_of(card, instance) / MIB};
    return SUCCESS;
}
