"""A session of DevExplorer as Python.

It ran on Python 3.11.7, PyTorch 2.13.0+cpu.
"""

import copy

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils._pytree import tree_map

from devexplorer import add_virtual_gpus
from devexplorer import move_lazily
from devexplorer import samples

add_virtual_gpus("2x Tesla T4")  # simulated

# 1 CPU thread
torch.set_num_threads(1)

# x is on cpu
x = torch.rand((2, 20), dtype=torch.float32, device="cpu", generator=torch.Generator("cpu").manual_seed(3))

# y is on vgpu:0
y = torch.randn((2, 20), dtype=torch.float64, device="cpu", generator=torch.Generator("cpu").manual_seed(0)).to("vgpu:0").requires_grad_()

# mlp is on cpu
mlp = samples.build("mlp", seed=5)

# my tied-model is on vgpu:1
my_tied_model = samples.build("tied", seed=6).to("vgpu:1")

# lazy-mlp is on vgpu:0
lazy_mlp = move_lazily(samples.build("lazy-mlp", seed=0), "vgpu:0")

# nested is on cpu
nested = samples.build("nested", seed=0).to("cpu", torch.bfloat16)

# lazy-mlp ran forward
_inputs = samples.sample_for(lazy_mlp, "lazy-mlp")
torch.manual_seed(0)  # for the values of lazy parameters
print(lazy_mlp(*_inputs).shape)

# mlp:0 and x are now on vgpu:0
mlp.get_submodule("0").to("vgpu:0")
x = x.to("vgpu:0")

# nested:0.block 1 is now on vgpu:1
nested.get_submodule("0.block 1").to("vgpu:1", torch.float64)

# x[0, 1] is now -7.5
with torch.no_grad():
    x[0, 1] = -7.5

# product is on vgpu:0
product = x * x

# mlp is now on vgpu:0
mlp.to("vgpu:0")

# mlp ran forward and backward
mlp(x).sum().backward()

# mlp2 and product2 are on cpu
mlp2 = copy.deepcopy(mlp).to("cpu")
mlp2.zero_grad()
product2 = product.to("cpu", copy=True)

# product2 is removed
del product2

# vgpu:2 is here
add_virtual_gpus("L4")

# product is now on vgpu:2, as a new tensor
product = product.to("vgpu:2")

# mlp:2 has new values
_generator = torch.Generator("vgpu:0").manual_seed(7)
with torch.no_grad():
    for _p in mlp.get_submodule("2").parameters():
        if _p.dim() > 1:
            torch.nn.init.xavier_uniform_(_p, gain=1.0, generator=_generator)
        else:
            torch.nn.init.zeros_(_p)

# mlp:0 is frozen
mlp.get_submodule("0").requires_grad_(False)

# mlp is in evaluation mode
mlp.eval()

# 0.block 2.0.weight is tied to 0.block 0.0.weight
setattr(nested.get_submodule("0.block 2.0"), "weight", nested.get_parameter("0.block 0.0.weight"))

# my tied-model has an optimizer: Adam, lr 0.01
_optimizer_my_tied_model = torch.optim.Adam([_p for _p in my_tied_model.parameters() if _p.requires_grad], lr=0.01)

# my tied-model made a step
_optimizer_my_tied_model.zero_grad()

_inputs = samples.sample_for(my_tied_model, "tied")
my_tied_model(*_inputs).sum().backward()
_optimizer_my_tied_model.step()

# towers is on cpu
towers = samples.build("two-towers", seed=0)

# towers is split over vgpu:0 and vgpu:1
class Hops(TorchFunctionMode):
    """Lets each part of a model fetch its inputs to its own device; the output comes back to where the input was."""

    def __init__(self, model):
        super().__init__()
        self.hooks = [model.register_forward_pre_hook(self.begin, with_kwargs=True)]
        self.hooks += [module.register_forward_pre_hook(self.fetch, with_kwargs=True) for module in model.modules()]
        self.hooks += [model.register_forward_hook(self.end, with_kwargs=True, always_call=True)]

    def __deepcopy__(self, memo):
        made = Hops.__new__(Hops)  # in a copy of the model nothing follows
        made.hooks = []
        return made

    def begin(self, model, args, kwargs):
        if self.hooks:
            tensors = (value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor))
            self.home = next((tensor.device for tensor in tensors), None)
            self.__enter__()

    def fetch(self, module, args, kwargs):
        if not self.hooks:
            return None
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        devices = {tensor.device for tensor in (own[:1] or [*module.parameters(), *module.buffers()])}
        return self.to((args, kwargs), devices.pop()) if len(devices) == 1 else None

    def end(self, model, args, kwargs, output):
        if not self.hooks:
            return output
        self.__exit__(None, None, None)
        return output if self.home is None else self.to(output, self.home)

    def to(self, values, device):
        return tree_map(lambda value: value.to(device) if isinstance(value, torch.Tensor) else value, values)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        # A function between the parts, such as a sum of two outputs, is called again where its first tensor is.
        try:
            return func(*args, **(kwargs or {}))
        except RuntimeError:
            tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
            if len({tensor.device for tensor in tensors}) < 2:
                raise
            args, kwargs = self.to((args, kwargs or {}), tensors[0].device)
            return func(*args, **kwargs)

    def remove(self):
        for hook in self.hooks:
            hook.remove()


towers_hops = Hops(towers)
towers.get_submodule("query").to("vgpu:0")
towers.get_submodule("item").to("vgpu:1")

# towers ran forward
_inputs = samples.sample_for(towers, "two-towers")
print(towers(*_inputs).shape)

# mlp is on 2 devices: mlp-0 and mlp-1
_inputs = samples.sample_for(mlp, "mlp")
mlp_0 = copy.deepcopy(mlp).to("vgpu:0").eval()
mlp_1 = copy.deepcopy(mlp).to("vgpu:1").eval()
_rows = zip(*(one.chunk(2) for one in _inputs))
with torch.no_grad():
    _outputs = [
        model(*(one.to(device) for one in rows))
        for model, device, rows in zip([mlp_0, mlp_1], ["vgpu:0", "vgpu:1"], _rows)
    ]
print(torch.cat([output.to("vgpu:0") for output in _outputs]).shape)

# joined is on cpu
joined = samples.build("two-towers", seed=0)

# joined is split over vgpu:0 and vgpu:1
class Hops(TorchFunctionMode):
    """Lets each part of a model fetch its inputs to its own device; the output comes back to where the input was."""

    def __init__(self, model):
        super().__init__()
        self.hooks = [model.register_forward_pre_hook(self.begin, with_kwargs=True)]
        self.hooks += [module.register_forward_pre_hook(self.fetch, with_kwargs=True) for module in model.modules()]
        self.hooks += [model.register_forward_hook(self.end, with_kwargs=True, always_call=True)]

    def __deepcopy__(self, memo):
        made = Hops.__new__(Hops)  # in a copy of the model nothing follows
        made.hooks = []
        return made

    def begin(self, model, args, kwargs):
        if self.hooks:
            tensors = (value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor))
            self.home = next((tensor.device for tensor in tensors), None)
            self.__enter__()

    def fetch(self, module, args, kwargs):
        if not self.hooks:
            return None
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        devices = {tensor.device for tensor in (own[:1] or [*module.parameters(), *module.buffers()])}
        return self.to((args, kwargs), devices.pop()) if len(devices) == 1 else None

    def end(self, model, args, kwargs, output):
        if not self.hooks:
            return output
        self.__exit__(None, None, None)
        return output if self.home is None else self.to(output, self.home)

    def to(self, values, device):
        return tree_map(lambda value: value.to(device) if isinstance(value, torch.Tensor) else value, values)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        # A function between the parts, such as a sum of two outputs, is called again where its first tensor is.
        try:
            return func(*args, **(kwargs or {}))
        except RuntimeError:
            tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
            if len({tensor.device for tensor in tensors}) < 2:
                raise
            args, kwargs = self.to((args, kwargs or {}), tensors[0].device)
            return func(*args, **kwargs)

    def remove(self):
        for hook in self.hooks:
            hook.remove()


joined_hops = Hops(joined)
joined.get_submodule("query").to("vgpu:0")
joined.get_submodule("item").to("vgpu:1")

# joined no longer has hops
joined_hops.remove()

# joined is on vgpu:1
joined.to("vgpu:1")

# 0.block 2.0.weight is untied
setattr(nested.get_submodule("0.block 2.0"), "weight", torch.nn.Parameter(nested.get_parameter("0.block 2.0.weight").detach().clone(), requires_grad=True))

# Nothing had to move
for _p, _state in _optimizer_my_tied_model.state.items():
    for _key, _value in _state.items():
        if hasattr(_value, "to") and _key != "step" and _value.dim() > 0:
            _state[_key] = _value.to(_p.device, _p.dtype)

# mlp no longer has gradients
mlp.zero_grad(set_to_none=True)

# Commands for DevExplorer, which can open this file: [{"type":"AddVirtual","request":0,"spec":"2x Tesla T4"},{"type":"SetThreads","request":0,"threads":1},{"type":"NewTensor","request":0,"name":"x","fill":"rand","shape":[2,20],"text":"","dtype":null,"device":"cpu","requires_grad":false,"fall_back":false,"seed":3},{"type":"NewTensor","request":0,"name":"y","fill":"randn","shape":[2,20],"text":"","dtype":"float64","device":"vgpu:0","requires_grad":true,"fall_back":false,"seed":0},{"type":"BuildModel","request":0,"recipe":"mlp","name":"mlp","device":"cpu","dtype":null,"seed":5},{"type":"BuildModel","request":0,"recipe":"tied","name":"my tied-model","device":"vgpu:1","dtype":null,"seed":6},{"type":"BuildModel","request":0,"recipe":"lazy-mlp","name":"lazy-mlp","device":"vgpu:0","dtype":null,"seed":0},{"type":"BuildModel","request":0,"recipe":"nested","name":"nested","device":"cpu","dtype":"bfloat16","seed":0},{"type":"Forward","request":0,"target":"lazy-mlp","input":null,"output":null},{"type":"Move","request":0,"targets":["mlp:0","x"],"device":"vgpu:0","dtype":null,"copy":false,"optimizer":false},{"type":"Move","request":0,"targets":["nested:0.block 1"],"device":"vgpu:1","dtype":"float64","copy":false,"optimizer":false},{"type":"EditElement","request":0,"target":"x","index":[0,1],"value":-7.5},{"type":"Combine","request":0,"left":"x","right":"x","operator":"*","name":"product"},{"type":"Move","request":0,"targets":["mlp"],"device":"vgpu:0","dtype":null,"copy":false,"optimizer":false},{"type":"Backward","request":0,"target":"mlp","input":"x"},{"type":"Move","request":0,"targets":["mlp","product"],"device":"cpu","dtype":null,"copy":true,"optimizer":false},{"type":"Remove","request":0,"names":["product2"]},{"type":"AddVirtual","request":0,"spec":"L4"},{"type":"Move","request":0,"targets":["product"],"device":"vgpu:2","dtype":null,"copy":false,"optimizer":false},{"type":"Initialise","request":0,"target":"mlp:2","rule":"xavier-uniform","options":{},"biases":true,"seed":7},{"type":"SetRequiresGrad","request":0,"targets":["mlp:0"],"on":false},{"type":"SetTraining","request":0,"target":"mlp","on":false},{"type":"Tie","request":0,"first":"nested:0.block 0.0.weight","second":"nested:0.block 2.0.weight"},{"type":"MakeOptimizer","request":0,"target":"my tied-model","kind":"adam","learning_rate":0.01},{"type":"TrainStep","request":0,"target":"my tied-model","input":null},{"type":"BuildModel","request":0,"recipe":"two-towers","name":"towers","device":"cpu","dtype":null,"seed":0},{"type":"Split","request":0,"target":"towers","device_map":{"query":"vgpu:0","item":"vgpu:1"}},{"type":"Forward","request":0,"target":"towers","input":null,"output":null},{"type":"Replicate","request":0,"target":"mlp","devices":["vgpu:0","vgpu:1"],"input":null},{"type":"BuildModel","request":0,"recipe":"two-towers","name":"joined","device":"cpu","dtype":null,"seed":0},{"type":"Split","request":0,"target":"joined","device_map":{"query":"vgpu:0","item":"vgpu:1"}},{"type":"InsertHops","request":0,"target":"joined","on":false},{"type":"Join","request":0,"target":"joined","device":"vgpu:1"},{"type":"Untie","request":0,"target":"nested:0.block 2.0.weight"},{"type":"MoveOptimizer","request":0,"target":"my tied-model"},{"type":"ClearGradients","request":0,"target":"mlp"}]
