# packages: jax jaxlib numpy
"""A compiler (XLA with LLVM) and its threads; callbacks from compiled code."""
import jax
import jax.numpy as jnp

jax.config.update("jax_platforms", "cpu")
def loss(w, x):
    return jnp.tanh(x @ w).sum() ** 2
x = jnp.arange(12.0).reshape(4, 3) / 10
w = jnp.array([0.1, -0.2, 0.3])
print(jax.jit(jax.grad(loss))(w, x), jax.vmap(lambda v: v * 2 + 1)(x)[1], jnp.linalg.svd(x @ x.T + jnp.eye(4))[1])
print(jax.lax.scan(lambda c, v: (c + v, c), 0.0, jnp.arange(9.0))[0], jax.random.normal(jax.random.key(1), (3,)), jnp.sort(jnp.sin(jnp.arange(999.0)))[::333])
print(jax.jit(lambda v: jax.pure_callback(lambda a: a * 3, jax.ShapeDtypeStruct((), "float32"), v))(jnp.float32(2)))
try:
    jnp.ones(3) @ jnp.ones(4)
except TypeError as error:
    print(type(error).__name__)
