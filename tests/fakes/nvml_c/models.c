#include "models.h"

#include <stdlib.h>
#include <string.h>

static const Model MODELS[] = {
    {.key = "h200", .name = "NVIDIA H200", .part_number = "900-21010-0040-000", .vbios = "96.00.A5.00.01", .brand = 14, .architecture = 9,
     .major = 9, .minor = 0, .sms = 132, .cores = 16896, .bus_bits = 6144, .total_mib = 143771, .reserved_mib = 608, .cap_w = 700,
     .idle_w = 75, .least_w = 200, .sm_idle_mhz = 345, .sm_max_mhz = 1980, .memory_mhz = 3201, .video_max_mhz = 1545, .fans = 0,
     .pcie_generation = 5, .links = 18, .link_version = 6, .switched = 1, .ecc = 1, .mig = 1, .memory_sensor = 1, .remapping = 1,
     .serial = 1},
    {.key = "a100", .name = "NVIDIA A100 80GB PCIe", .part_number = "900-21001-0020-000", .vbios = "92.00.90.00.0A", .brand = 14,
     .architecture = 7, .major = 8, .minor = 0, .sms = 108, .cores = 6912, .bus_bits = 5120, .total_mib = 81920, .reserved_mib = 535,
     .cap_w = 300, .idle_w = 42, .least_w = 150, .sm_idle_mhz = 210, .sm_max_mhz = 1410, .memory_mhz = 1512, .video_max_mhz = 1290,
     .fans = 0, .pcie_generation = 4, .links = 12, .link_version = 4, .switched = 0, .ecc = 1, .mig = 1, .memory_sensor = 1,
     .remapping = 1, .serial = 1},
    {.key = "rtx4080", .name = "NVIDIA GeForce RTX 4080", .part_number = NULL, .vbios = "95.03.0B.00.8E", .brand = 5, .architecture = 8,
     .major = 8, .minor = 9, .sms = 76, .cores = 9728, .bus_bits = 256, .total_mib = 16376, .reserved_mib = 392, .cap_w = 320,
     .idle_w = 14, .least_w = 150, .sm_idle_mhz = 210, .sm_max_mhz = 3105, .memory_mhz = 11201, .video_max_mhz = 2415, .fans = 2,
     .pcie_generation = 4, .display = 1, .throttle = 0x60},
    {.key = "t4", .name = "Tesla T4", .part_number = "900-2G183-0000-001", .vbios = "90.04.A7.00.01", .brand = 2, .architecture = 6,
     .major = 7, .minor = 5, .sms = 40, .cores = 2560, .bus_bits = 256, .total_mib = 15360, .reserved_mib = 258, .cap_w = 70, .idle_w = 9,
     .least_w = 60, .sm_idle_mhz = 300, .sm_max_mhz = 1590, .memory_mhz = 5001, .video_max_mhz = 1470, .fans = 0, .pcie_generation = 3,
     .ecc = 1, .retirement = 1, .serial = 1, .throttle = 0x4},
    {.key = "gb10", .name = "NVIDIA GB10", .part_number = NULL, .vbios = "9A.0B.10.00.00", .brand = 14, .architecture = 10, .major = 12,
     .minor = 1, .sms = 48, .cores = 6144, .bus_bits = 256, .total_mib = 0, .cap_w = 140, .idle_w = 5, .least_w = 40, .sm_idle_mhz = 208,
     .sm_max_mhz = 3003, .memory_mhz = 8533, .video_max_mhz = 2700, .fans = 0, .pcie_generation = 5},
};
static const char *const USUAL[] = {"h200", "h200", "h200", "h200mig", "a100", "a100", "rtx4080", "t4"};

const Model *model_of(const char *key, int *mig) {
    *mig = !strcmp(key, "h200mig");
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (!strcmp(*mig ? "h200" : key, MODELS[i].key)) return &MODELS[i];
    return NULL;
}

const char *usual_model(int place) { return USUAL[place % 8]; }

int models_by_environment(const char **keys, int most) {
    static char models[512];
    const char *given = getenv("FAKE_NVML_MODELS"), *count_given = getenv("FAKE_NVML_CARDS");
    const char *chosen[MOST_CARDS];
    int models_given = 0;
    strncpy(models, given ? given : "", sizeof models - 1);
    char *rest;
    for (char *next = strtok_r(models, ",", &rest); next && models_given < MOST_CARDS; next = strtok_r(NULL, ",", &rest))
        chosen[models_given++] = next;
    int count = count_given && *count_given ? atoi(count_given) : models_given ? models_given : 2;
    if (count > most) count = most;
    for (int i = 0; i < count; i++) keys[i] = models_given ? chosen[i % models_given] : usual_model(i);
    return count;
}

int cuda_of_driver(void) {
    const char *given = getenv("FAKE_NVML_CUDA");
    return given && *given ? atoi(given) : 12080;
}

void card_uuid(int number, unsigned char to[16]) {
    static const unsigned char BEGIN[] = {0xfa, 0x4e, 0, 0, 0xc0, 0xde, 0x40, 0, 0x80, 0};
    memset(to, 0, 16);
    memcpy(to, BEGIN, sizeof BEGIN);
    to[14] = (unsigned char)((number + 1) >> 8);
    to[15] = (unsigned char)(number + 1);
}

int card_bus(int number) { return 0x1b + 0x0c * number; }

int card_node(int number) { return number % 8 / 4; }
