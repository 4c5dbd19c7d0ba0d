# torchtap::quantization: from recorded ranges to a model in int8 (extras/quantization/README.md).
torchtap_part(quantization NEEDS json statistics WANTS torchscript ROOMS quantization
              DESCRIPTION "finds scales and zero points from recorded distributions, and quantizes models with them")
