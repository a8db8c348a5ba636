"""Published steps of training and inference, and the plan that each of them is. No torch; any thread.

`resources/published_steps.csv` has the rows with their sources. The cost model is fitted to some of them
(`tests/benchmarks/fit_cost_model.py`), so a prediction for such a row is no test of the model: `fitted_to` says which.
"""

from __future__ import annotations
