# A question for <nonce>.example to a resolver of the internet.
label = NONCE.encode()
question = struct.pack(">HHHHHH", 1, 0x100, 1, 0, 0, 0) + bytes([len(label)]) + label + b"\x07example\0" + struct.pack(">HH", 1, 1)
reach_udp("8.8.8.8", 53, question)
