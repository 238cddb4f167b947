"""Policies for use elsewhere: normalise, network, best action, scaled to the action space.

A policy is traced by JAX and written down as operations of ONNX (``trace``), so that whatever a
network is made of is exported by the same few lines. The graph is a file of ONNX
(``onnx_file``), or weights with a header that lists its operations (``weights``), and can be
computed with numpy alone (``evaluate``).
"""
