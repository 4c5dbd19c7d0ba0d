"""Models of torchvision, timm and transformers, with random weights, that scripts/check-packages and check-views try: of each
family one that is small enough."""

import torch
from torch.utils import _pytree as pytree

# The sizes of images.
TORCHVISION = {
    "alexnet": 64,
    "convnext_tiny": 64,
    "densenet121": 64,
    "efficientnet_b0": 64,
    "googlenet": 64,
    "mnasnet1_0": 64,
    "mobilenet_v3_large": 64,
    "regnet_y_400mf": 64,
    "resnet50": 64,
    "shufflenet_v2_x1_0": 64,
    "squeezenet1_1": 64,
    "swin_t": 64,
    "vgg11": 64,
    "vit_b_16": 224,
    "deeplabv3_mobilenet_v3_large": 64,
}
TIMM = {
    "convnextv2_tiny": 64,
    "deit3_small_patch16_224": 224,
    "efficientnetv2_rw_s": 64,
    "mixer_s16_224": 224,
    "resnest50d": 64,
}
# Language models, small ones made from a configuration.
TRANSFORMERS = {
    "bert": ("BertConfig", "BertModel"),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel"),
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "t5-encoder": ("T5Config", "T5EncoderModel"),
}


def names():
    yield from TORCHVISION
    yield from (f"timm:{name}" for name in TIMM)
    yield from (f"transformers:{name}" for name in TRANSFORMERS)


def language_model(name):
    import transformers

    config, model = (getattr(transformers, one) for one in TRANSFORMERS[name])
    sizes = {"vocab_size": 1000, "attn_implementation": "eager", "use_cache": False}
    if name == "gpt2":
        sizes |= {"n_embd": 128, "n_layer": 4, "n_head": 4, "n_positions": 64}
    elif name == "t5-encoder":
        sizes |= {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 4, "num_heads": 4}
    else:
        sizes |= {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
        if name != "bert":
            sizes |= {"num_key_value_heads": 2, "max_position_embeddings": 64}
    return model(config(**sizes)), (torch.randint(1000, (2, 32)),)


def build(name):
    torch.manual_seed(0)
    library, _, short = name.rpartition(":")
    if library == "transformers":
        model, arguments = language_model(short)
    elif library == "timm":
        import timm

        model, arguments = timm.create_model(short, pretrained=False), (torch.rand(2, 3, TIMM[short], TIMM[short]),)
    else:
        import torchvision

        options = {"weights": None} | ({"init_weights": False} if name == "googlenet" else {})
        options |= {"weights_backbone": None} if name.startswith("deeplab") else {}
        model = torchvision.models.get_model(name, **options)
        arguments = (torch.rand(2, 3, TORCHVISION[name], TORCHVISION[name]),)
    return model.eval(), arguments


def tensors(value):
    return [one for one in pytree.tree_leaves(value) if isinstance(one, torch.Tensor)]
