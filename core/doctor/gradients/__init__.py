"""Why a parameter gets no gradient: which line of a forward cut it off. One thread, the caller's."""
