/* Parts of a card (MIG), and what joins cards: NVLink, PCIe, NUMA. */
#define _GNU_SOURCE
#include "answer.h"

#include <string.h>

/* --- MIG ------------------------------------------------------------------------------------------------------------- */

API int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    WHOLE(nvmlDeviceGetMigMode);
    NEEDS(card->model->mig);
    *current = *pending = (unsigned)card->mig;
    return SUCCESS;
}

API int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) {
    WHOLE(nvmlDeviceGetMaxMigDeviceCount);
    *count = card->model->mig ? MOST_INSTANCES : 0;
    return SUCCESS;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *to) {
    WHOLE(nvmlDeviceGetMigDeviceHandleByIndex);
    NEEDS(card->model->mig);
    if (index >= (unsigned)card->instances) return NOT_FOUND;
    *to = handle_of(card, (int)index);
    return SUCCESS;
}

API int nvmlDeviceIsMigDeviceHandle(Device device, unsigned *is) {
    CARD(nvmlDeviceIsMigDeviceHandle);
    *is = instance >= 0;
    return SUCCESS;
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device device, Device *to) {
    CARD(nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
    if (instance < 0) return INVALID_ARGUMENT;
    *to = handle_of(card, -1);
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstanceId(Device device, unsigned *id) {
    CARD(nvmlDeviceGetGpuInstanceId);
    NEEDS(instance >= 0);
    *id = (unsigned)instance + 1;
    return SUCCESS;
}

API int nvmlDeviceGetComputeInstanceId(Device device, unsigned *id) {
    CARD(nvmlDeviceGetComputeInstanceId);
    NEEDS(instance >= 0);
    *id = 0;
    return SUCCESS;
}

/* --- NVLink and topology --------------------------------------------------------------------------------------------- */

/* The card at the other end: cards with links to each other stand in pairs. NULL: a switch, or nobody. */
static const Card *partner(const Card *card) {
    const int other = card->number ^ 1;
    return !card->model->switched && other < card_count && cards[other].listed && cards[other].model == card->model ? &cards[other] : NULL;
}

int links_of(const Card *card) { return card->model->switched || partner(card) ? card->model->links : 0; }

#define LINK(name) WHOLE(name); NEEDS(card->model->links); if (link >= (unsigned)card->model->links) return INVALID_ARGUMENT

API int nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active) {
    LINK(nvmlDeviceGetNvLinkState);
    *active = links_of(card) > 0;
    return SUCCESS;
}

API int nvmlDeviceGetNvLinkVersion(Device device, unsigned link, unsigned *version) {
    LINK(nvmlDeviceGetNvLinkVersion);
    *version = (unsigned)card->model->link_version;
    return SUCCESS;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo *info) {
    LINK(nvmlDeviceGetNvLinkRemotePciInfo_v2);
    NEEDS(links_of(card));
    if (partner(card)) write_pci(info, bus_of(partner(card)), 0x20b510de);
    else write_pci(info, 0x03 + link / 5, 0x22a310de); /* one of the four switches */
    return SUCCESS;
}

#ifndef OLD_DRIVER
/* 0: a card, 2: a switch, 255: not known */
API int nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned *to) {
    LINK(nvmlDeviceGetNvLinkRemoteDeviceType);
    *to = partner(card) ? 0 : links_of(card) ? 2 : 255;
    return SUCCESS;
}
#endif

API int nvmlDeviceGetNvLinkCapability(Device device, unsigned link, unsigned capability, unsigned *to) {
    LINK(nvmlDeviceGetNvLinkCapability);
    *to = capability != 4; /* no SLI bridge */
    return SUCCESS;
}

#define PAIR(name)                                           \
    Card *card, *other;                                      \
    int instance, part;                                      \
    TRY(enter_device(F_##name, device, &card, &instance));   \
    TRY(resolve(second, &other, &part))

static int node_of(const Card *card) { return card_node(card->number); }

API int nvmlDeviceGetTopologyCommonAncestor(Device device, Device second, unsigned *level) {
    PAIR(nvmlDeviceGetTopologyCommonAncestor);
    *level = card == other ? 0 : card->number / 2 == other->number / 2 ? 10 : node_of(card) == node_of(other) ? 40 : 50;
    return SUCCESS;
}

/* which 0: read, 1: write, 2: NVLink, 3: atomics, 4: PCIe. Status 0: works, 1: the chipset does not, 2: the card does not, 5: not so. */
API int nvmlDeviceGetP2PStatus(Device device, Device second, unsigned which, unsigned *status) {
    PAIR(nvmlDeviceGetP2PStatus);
    const int linked = card != other && ((card->model->switched && other->model->switched && !card->mig && !other->mig) || partner(card) == other);
    if (which > 5) return INVALID_ARGUMENT;
    if (linked) *status = 0;
    else if (which == 2 || which == 3) *status = 5;
    else if (card->model->display || other->model->display) *status = 2;
    else *status = node_of(card) == node_of(other) && !card->mig && !other->mig ? 0 : 1;
    return SUCCESS;
}

API int nvmlDeviceGetCpuAffinity(Device device, unsigned size, unsigned long *mask) {
    CARD(nvmlDeviceGetCpuAffinity);
    if (!size) return INVALID_ARGUMENT;
    memset(mask, 0, size * sizeof *mask);
    mask[0] = node_of(card) ? 0xffff0000ffff0000UL : 0x0000ffff0000ffffUL;
    for (int i = 0; i < overrun(); i++) mask[size + (unsigned)i] = ~0UL;
    return SUCCESS;
}

API int nvmlDeviceGetMemoryAffinity(Device device, unsigned size, unsigned long *mask, unsigned scope) {
    CARD(nvmlDeviceGetMemoryAffinity);
    (void)scope;
    if (!size) return INVALID_ARGUMENT;
    memset(mask, 0, size * sizeof *mask);
    mask[0] = 1UL << node_of(card);
    for (int i = 0; i < overrun(); i++) mask[size + (unsigned)i] = ~0UL;
    return SUCCESS;
}

/* Only for cards that are a node of their own. */
NUMBER(nvmlDeviceGetNumaNodeId, int, 0, node_of(card))
