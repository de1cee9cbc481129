target = PID_1
answers = {}
for number in range(1, 65):
    try: os.kill(target, number); answer = "taken"
    except OSError as error: answer = refused(error)
    answers[answer] = answers.get(answer, 0) + 1
time.sleep(0.2)
held("64 signals to %d: %s" % (target, answers))
