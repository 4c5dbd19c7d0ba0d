# torchtap::statistics: reductions beyond those of the kernel, and reductions by name (docs/concepts/reductions.md). Its headers are
# also at <torchtap/reductions/NAME.hpp>, where those of the kernel are.
torchtap_part(statistics ROOMS statistics
              DESCRIPTION "has histograms, moving averages, quantiles, top values, random choices, blocks, covariance, similarity and reductions by key, pairs samples with tensors of other modules, and makes reductions of their names")
