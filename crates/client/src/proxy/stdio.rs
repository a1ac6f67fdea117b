//! A caller on standard input and output: one message a line.

use std::future::Future;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

use super::Proxy;
use super::conversation::{Conversation, From};
use super::lines::{Line, Lines, one_line};
use super::message::{self, INVALID, SYNTAX};
use super::outlet::{Item, Outlet, Parcel};
use crate::limits;

impl Proxy {
    /// Serves one caller until its input ends, it reads no more, or `shutdown`; then waits, within the bounds of one
    /// call, for what was begun.
    ///
    /// # Errors
    /// The input cannot be read.
    pub async fn serve_stdio(
        self: &Arc<Self>,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Unpin + Send + 'static,
        shutdown: impl Future<Output = ()>,
    ) -> std::io::Result<()> {
        let (to, items) = mpsc::channel(limits::UNREAD);
        let outlet = Outlet::new(to);
        let conversation = Conversation::new(Arc::clone(self), self.link(outlet.clone(), false));
        let mut writer = tokio::spawn(write(items, output));
        let from = From { reply: outlet, key: None, leaving_cancels: false, came: 0 };
        let mut told_to_end = false;
        let read = tokio::select! {
            () = shutdown => {
                told_to_end = true;
                Ok(())
            }
            read = self.read(input, &conversation, &from) => read,
            _unread = &mut writer => Ok(()),
        };
        let within = self.flights.policy.within;
        if !told_to_end && read.is_ok() && !writer.is_finished() {
            tokio::select! {
                () = conversation.served() => {}
                () = self.flights.time.sleep(within) => {}
                _unread = &mut writer => {}
            }
        }
        self.flights.drain(within).await;
        conversation.link.end().await;
        read
    }

    async fn read(
        &self,
        input: impl AsyncRead + Unpin,
        conversation: &Arc<Conversation>,
        from: &From,
    ) -> std::io::Result<()> {
        let mut lines = Lines::new(BufReader::new(input), limits::FRAME);
        loop {
            let error = match lines.next().await? {
                Line::Text(text) => {
                    conversation.receive(text, from.clone()).await;
                    continue;
                }
                Line::NotText => message::error("null", SYNTAX, "this is not UTF-8", None),
                Line::TooLong => {
                    let why = format!("a message may have {} bytes", limits::FRAME);
                    message::error("null", INVALID, &why, None)
                }
                Line::End => return Ok(()),
            };
            from.reply.send(Item::Answer(Parcel::plain(error))).await;
        }
    }
}

/// Writes what goes to the caller. An outcome is delivered once it is written.
async fn write(mut items: mpsc::Receiver<Item>, mut output: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    while let Some(item) = items.recv().await {
        let (text, receipt) = match item {
            Item::Note(text) => (text, None),
            Item::Answer(parcel) => (parcel.text, parcel.receipt),
        };
        if let Some(receipt) = &receipt {
            receipt.leaves();
        }
        output.write_all([one_line(&text).as_bytes(), b"\n"].concat().as_slice()).await?;
        output.flush().await?;
        if let Some(receipt) = receipt {
            receipt.delivered().await;
        }
    }
    Ok(())
}
