"""A teaching framework on NumPy, written as courses write them: clear, slow, with loops."""

from __future__ import annotations

import numpy as np

_random = np.random.default_rng(7)


class Tensor:
    def __init__(self, data, requires_grad=False):
        self.data = np.array(data) if not isinstance(data, np.ndarray) else data.copy()
        self.requires_grad = requires_grad
        self.grad = None

    @property
    def shape(self):
        return self.data.shape

    def __add__(self, other):
        return Tensor(self.data + _data(other))

    def __mul__(self, other):
        return Tensor(self.data * _data(other))

    def matmul(self, other):
        return Tensor(np.matmul(self.data, other.data))

    __matmul__ = matmul

    def backward(self, gradient=None):
        if gradient is None:
            raise ValueError("a gradient is needed")
        self.grad = np.ones_like(self.data) * _data(gradient)


def _data(value):
    return value.data if isinstance(value, Tensor) else value


def weights(*shape):
    return Tensor((_random.standard_normal(shape) * 0.1).astype(np.float32), requires_grad=True)


class Layer:
    def __call__(self, *args):
        return self.forward(*args)

    def parameters(self):
        found = []
        for value in vars(self).values():
            if isinstance(value, Tensor) and value.requires_grad:
                found.append(value)
            elif isinstance(value, Layer):
                found += value.parameters()
            elif isinstance(value, list):
                found += [one for layer in value for one in layer.parameters()]
        return found


class Linear(Layer):
    """`weight` is in × out."""

    def __init__(self, inner, outer, bias=True):
        self.weight = weights(inner, outer)
        self.bias = weights(outer) if bias else None

    def forward(self, x):
        out = x @ self.weight
        return out if self.bias is None else out + self.bias


class Conv2d(Layer):
    def __init__(self, inner, outer, kernel, stride=1, padding=0, dilation=1, groups=1):
        kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
        self.kernel_size, self.stride, self.padding = kernel, stride, padding
        self.dilation, self.groups = dilation, groups
        self.weight = weights(outer, inner // groups, *kernel)
        self.bias = weights(outer)

    def forward(self, x):
        n, _, h, w = x.shape
        p, d, s = self.padding, self.dilation, self.stride
        padded = np.pad(x.data, ((0, 0), (0, 0), (p, p), (p, p)))
        outer, inner, kh, kw = self.weight.shape
        oh = (h + 2 * p - d * (kh - 1) - 1) // s + 1
        ow = (w + 2 * p - d * (kw - 1) - 1) // s + 1
        out = np.zeros((n, outer, oh, ow), x.data.dtype)
        each = outer // self.groups
        for o in range(outer):
            start = o // each * inner
            for i in range(oh):
                for j in range(ow):
                    rows = slice(i * s, i * s + d * (kh - 1) + 1, d)
                    columns = slice(j * s, j * s + d * (kw - 1) + 1, d)
                    patch = padded[:, start : start + inner, rows, columns]
                    out[:, o, i, j] = (patch * self.weight.data[o]).sum(axis=(1, 2, 3))
        return Tensor(out + self.bias.data[None, :, None, None])


class _Pool2d(Layer):
    def __init__(self, kernel_size, stride=None, padding=0):
        self.kernel_size, self.stride, self.padding = kernel_size, stride or kernel_size, padding

    def forward(self, x):
        n, c, h, w = x.shape
        k, s = self.kernel_size, self.stride
        oh, ow = (h - k) // s + 1, (w - k) // s + 1
        out = np.empty((n, c, oh, ow), x.data.dtype)
        for i in range(oh):
            for j in range(ow):
                window = x.data[:, :, i * s : i * s + k, j * s : j * s + k]
                out[:, :, i, j] = self.pool(window, axis=(2, 3))
        return Tensor(out)


class MaxPool2d(_Pool2d):
    pool = staticmethod(np.max)


class AvgPool2d(_Pool2d):
    pool = staticmethod(np.mean)


class ReLU(Layer):
    def forward(self, x):
        return Tensor(np.maximum(x.data, 0))


class Flatten(Layer):
    def forward(self, x):
        return Tensor(x.data.reshape(x.shape[0], -1))


class Dropout(Layer):
    def __init__(self, share=0.5):
        self.share, self.training = share, True

    def forward(self, x):
        if not self.training:
            return x
        return x * (np.random.rand(*x.shape) > self.share)


class LayerNorm(Layer):
    def __init__(self, width):
        self.gamma, self.beta = Tensor(np.ones(width), True), Tensor(np.zeros(width), True)

    def forward(self, x):
        mean, var = x.data.mean(-1, keepdims=True), x.data.var(-1, keepdims=True)
        return Tensor((x.data - mean) / np.sqrt(var + 1e-5)) * self.gamma + self.beta


class BatchNorm2d(Layer):
    def __init__(self, channels):
        self.gamma, self.beta = Tensor(np.ones(channels), True), Tensor(np.zeros(channels), True)
        self.running_mean, self.running_var = np.zeros(channels), np.ones(channels)
        self.training = True

    def forward(self, x):
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var = x.data.mean((0, 2, 3)), x.data.var((0, 2, 3))
            self.running_mean *= 0.9
            self.running_mean += 0.1 * mean
        mean, var, gamma, beta = (
            one.reshape(1, -1, 1, 1) for one in (mean, var, self.gamma.data, self.beta.data)
        )
        return Tensor((x.data - mean) / np.sqrt(var + 1e-5) * gamma + beta)


class Embedding(Layer):
    def __init__(self, words, width):
        self.weight = weights(words, width)

    def forward(self, indices):
        return Tensor(self.weight.data[indices.data.astype(int)])


class Softmax(Layer):
    def forward(self, x):
        powers = np.exp(x.data - x.data.max(-1, keepdims=True))
        return Tensor(powers / powers.sum(-1, keepdims=True))


class MultiHeadAttention(Layer):
    def __init__(self, width, heads):
        self.num_heads, self.width = heads, width
        self.q_proj, self.k_proj = Linear(width, width), Linear(width, width)
        self.v_proj, self.out_proj = Linear(width, width), Linear(width, width)

    def forward(self, x):
        b, s, e = x.shape
        d = e // self.num_heads

        def split(tensor):
            return tensor.data.reshape(b, s, self.num_heads, d).transpose(0, 2, 1, 3)

        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        scores = np.matmul(q, k.transpose(0, 1, 3, 2)) / np.sqrt(d)
        mixed = np.matmul(Softmax()(Tensor(scores)).data, v)
        return self.out_proj(Tensor(mixed.transpose(0, 2, 1, 3).reshape(b, s, e)))


class TransformerBlock(Layer):
    def __init__(self, width, heads, wide):
        self.attention = MultiHeadAttention(width, heads)
        self.norm1, self.norm2 = LayerNorm(width), LayerNorm(width)
        self.up, self.activation, self.down = Linear(width, wide), ReLU(), Linear(wide, width)

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.down(self.activation(self.up(x))))


class Sequential(Layer):
    def __init__(self, *layers):
        self.layers = list(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
