print('{"receipt": {"version": 1, "outcome": "exited", "exit_code": 0, "denied": [], "gaps": []}, "stdout": {"text": ""}, "stderr": {"text": ""}}')
print("HELD printed a receipt and exits 7", flush=True)
os._exit(7)
