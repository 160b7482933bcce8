//! Datasets in a bucket: equal to local ones, whatever the network does.

use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectStore, ObjectStoreExt, path::Path};

use crate::support::s3::{Fault, Rule, S3Server};

/// The server has to be one to the client before it can test anything else.
#[tokio::test]
async fn the_server_speaks_s3() {
    let server = S3Server::start();
    let store = server.store();
    let key = Path::parse("a folder/ö+&<%20>~.bin").unwrap();
    store.put(&key, "0123456789".into()).await.unwrap();
    assert_eq!(store.get(&key).await.unwrap().bytes().await.unwrap(), "0123456789");
    assert_eq!(store.get_range(&key, 2..5).await.unwrap(), "234");
    assert_eq!(store.head(&key).await.unwrap().size, 10);
    assert_eq!(server.log()[2].range.as_deref(), Some("2-4"));
    for i in 0..2_500 {
        server.put(&format!("many/{}/{i:04}", i % 3), "x");
    }
    let keys: Vec<_> = store.list(Some(&Path::from("many"))).map_ok(|meta| meta.location).try_collect().await.unwrap();
    assert_eq!(keys.len(), 2_500);
    assert!(keys.is_sorted());
    server.configure(|config| config.page_size = 2);
    let top = store.list_with_delimiter(None).await.unwrap();
    assert_eq!(top.common_prefixes.len(), 2);
    let top = store.list_with_delimiter(Some(&Path::from("many"))).await.unwrap();
    assert_eq!((top.common_prefixes.len(), top.objects.len()), (3, 0));
    let all: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert_eq!(all.len(), 2_501);
    server.fault(Fault::slow_down());
    server.rule(Rule::new(Fault::Reset).times(1));
    assert!(store.get(&key).await.unwrap_err().to_string().contains("SlowDown"));
    store.get(&key).await.unwrap();
    server.configure(|config| config.secret_key = "another".into());
    assert!(store.get(&key).await.unwrap_err().to_string().contains("SignatureDoesNotMatch"));
}

/// `Short` must be what it says: an answer in which nothing looks wrong.
#[tokio::test]
async fn faults_are_what_they_say() {
    let server = S3Server::start();
    server.put("a", vec![7; 1000]);
    let (store, key) = (server.store(), Path::from("a"));
    server.fault(Fault::Short);
    assert_eq!(store.get(&key).await.unwrap().bytes().await.unwrap().len(), 500);
    server.fault(Fault::FlippedBit);
    assert_ne!(store.get(&key).await.unwrap().bytes().await.unwrap(), vec![7; 1000]);
    for fault in [Fault::Cut, Fault::ResetInBody] {
        server.fault(fault);
        let mut body = store.get(&key).await.unwrap().into_stream();
        let mut got = 0;
        let error = loop {
            match body.next().await {
                Some(Ok(part)) => got += part.len(),
                other => break other,
            }
        };
        // Without retries the rest is an error, after the half.
        assert!(got <= 500 && matches!(error, Some(Err(_))), "{got} {error:?}");
    }
    let before = server.etag("a");
    server.fault(Fault::Replaced);
    let result = store.get(&key).await.unwrap();
    assert_ne!(result.meta.e_tag, Some(before));
    server.fault(Fault::Deleted);
    assert!(matches!(store.get(&key).await, Err(object_store::Error::NotFound { .. })));
}
