# torchtap::torchscript: hooks in models that torch.jit.script or torch.jit.trace made. LibTorch has deprecated TorchScript; the
# kernel knows of it by name alone, and asks this part.
torchtap_part(torchscript INNER_ROOMS torchscript
              DESCRIPTION "hooks the modules of TorchScript models")
