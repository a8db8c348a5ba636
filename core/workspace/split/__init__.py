"""Models in parts on several devices: `blocks`, `planner` (where they could be), `mapping` (where they shall be), `hops` between them."""
