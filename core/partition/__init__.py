"""Models in parts on several devices: `blocks`, `planner` proposes where each goes, `mapping` checks it, `hops` carries
activations."""
