/* The models of the fake cards, for the fake NVML and for the stand-in for CUDA (tests/standin): both list the same cards. */
#pragma once

#include <stdint.h>

#define MOST_CARDS 32
#define MIB (1024ULL * 1024)

typedef struct {
    const char *key, *name, *part_number, *vbios;
    int brand, architecture, major, minor, sms, cores, bus_bits;
    uint64_t total_mib, reserved_mib;
    int cap_w, idle_w, least_w;
    int sm_idle_mhz, sm_max_mhz, memory_mhz, video_max_mhz;
    int fans, pcie_generation;
    int links, link_version, switched; /* NVLinks; to a switch, or to the neighbouring card */
    int ecc, mig, memory_sensor, remapping, retirement, serial, display;
    uint64_t throttle; /* bits that stand while the card is busy */
} Model;

/* A model by its key; `mig`: whether it is the one with MIG switched on. NULL: there is none of this name. */
const Model *model_of(const char *key, int *mig);
/* The key of the card at this place where nothing is said. */
const char *usual_model(int place);
/* FAKE_NVML_CARDS and FAKE_NVML_MODELS: the key of each card; returns how many. The keys stay valid. */
int models_by_environment(const char **keys, int most);
/* FAKE_NVML_CUDA: the newest CUDA that the driver supports, 1000 x major + 10 x minor. */
int cuda_of_driver(void);

/* What identifies a card: CUDA and NVML agree on it. */
void card_uuid(int number, unsigned char to[16]);
int card_bus(int number);
/* The NUMA node that it is connected to. */
int card_node(int number);
