"""Models: sample models and the user's own, how they are made, walked, copied and run. Jobs thread, or a process of its
own."""
