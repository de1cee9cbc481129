//! Bounds on the requests of a box, with the test as the gateway: it has the far end of every stream.

use std::io::{Read as _, Write as _};
use std::sync::Mutex;

use super::*;

/// Streams that came to the door, with where they lead.
type Visits = Arc<Mutex<Vec<(String, StdStream)>>>;

fn errands() -> (Option<Errands>, Visits) {
    let visits = Visits::default();
    let door = Arc::clone(&visits);
    let door: Arc<Door> = Arc::new(move |to: &str, stream: BorrowedFd<'_>| {
        let stream = StdStream::from(stream.try_clone_to_owned()?);
        door.lock().unwrap().push((to.to_owned(), stream));
        Ok(())
    });
    (Some(Errands::to(door, Vec::new())), visits)
}

fn run(errands: &Option<Errands>, call: u32) -> Result<Errand, String> {
    errands.as_ref().unwrap().run(1, call, b"http://a.test\nGET / HTTP/1.1\r\n\r\n".to_vec())
}

/// Until so many came.
async fn visited(visits: &Visits, count: usize) {
    while visits.lock().unwrap().len() < count {
        tokio::task::yield_now().await;
    }
}

fn reason(answer: Result<Vec<u8>, String>) -> String {
    answer.unwrap_err().split(':').next().unwrap().to_owned()
}

#[tokio::test]
async fn one_more_than_a_box_may_have_at_once_is_refused_until_an_answer_is_taken() {
    let (mut errands, visits) = errands();
    let most = u32::try_from(MOST_AT_ONCE).unwrap();
    let under_way: Vec<Errand> = (1..=most).map(|call| run(&errands, call).unwrap()).collect();
    assert_eq!(reason(run(&errands, most + 1).map(|_| Vec::new())), "too_many");
    visited(&visits, MOST_AT_ONCE).await;
    let (to, mut stream) = visits.lock().unwrap().pop().unwrap();
    assert_eq!(to, "http://a.test");
    stream.write_all(b"HTTP/1.1 204 \r\n\r\n").unwrap();
    drop(stream);
    // Its answer is there and nobody has taken it: it takes a place still.
    while errands.as_ref().unwrap().done.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(reason(run(&errands, most + 1).map(|_| Vec::new())), "too_many");
    drop(next(&mut errands).await);
    assert!(run(&errands, most + 1).is_ok());
    drop(under_way);
}

#[tokio::test]
async fn a_request_ends_with_its_command_and_the_gateway_learns_it() {
    let (errands, visits) = errands();
    let under_way = run(&errands, 1).unwrap();
    visited(&visits, 1).await;
    drop(under_way);
    let (_, mut stream) = visits.lock().unwrap().pop().unwrap();
    let places = Arc::clone(&errands.as_ref().unwrap().places);
    while places.available_permits() < MOST_AT_ONCE {
        tokio::task::yield_now().await;
    }
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    assert!(heard.is_empty() || heard == b"GET / HTTP/1.1\r\n\r\n");
    assert!(errands.unwrap().done.is_empty(), "and nothing is said of it");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_answers_is_given_up() {
    let (mut errands, visits) = errands();
    let _under_way = run(&errands, 1).unwrap();
    assert_eq!(reason(next(&mut errands).await.answer), "timeout");
    assert_eq!(visits.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn an_answer_is_as_long_as_it_may_be_and_not_a_byte_longer() {
    for (length, good) in [(MAX_TOOL_ANSWER, true), (MAX_TOOL_ANSWER + 1, false)] {
        let (mut errands, visits) = errands();
        let _under_way = run(&errands, 1).unwrap();
        visited(&visits, 1).await;
        let (_, mut stream) = visits.lock().unwrap().pop().unwrap();
        // An error: it hears no more of it.
        let said = std::thread::spawn(move || stream.write_all(&vec![b'x'; length]).ok());
        let answer = next(&mut errands).await.answer;
        match answer {
            Ok(bytes) => assert!(good && bytes.len() == length),
            Err(why) => assert!(!good && why.starts_with("too_large:"), "{why}"),
        }
        said.join().unwrap();
    }
}

#[tokio::test]
async fn an_address_that_is_none_reaches_no_gateway() {
    for input in [&b"\xff\n"[..], &vec![b'a'; MAX_VISIT + 1]] {
        let (mut errands, visits) = errands();
        let _under_way = errands.as_ref().unwrap().run(1, 1, input.to_vec()).unwrap();
        assert_eq!(reason(next(&mut errands).await.answer), "bad-request");
        assert!(visits.lock().unwrap().is_empty());
    }
}
