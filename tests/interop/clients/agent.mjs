// The TypeScript SDKs' end of the line protocol between the driver and one SDK client; see agent.py.
//
// A client program brings `connect(endpoint)`, which resolves to an object with `server()`, `listTools()`,
// `call(tool, arguments, meta)` and `close()`. Nothing is judged here: what the SDK returned, or the words with
// which it gave up, goes back to the driver as it is.

import { createInterface } from 'node:readline';

export const CALL_TIMEOUT = 10_000;

export async function serve(connect) {
    let peer;
    const operations = {
        open: async ({ endpoint }) => {
            peer = await connect(endpoint);
            return peer.server();
        },
        list: () => peer.listTools(),
        call: ({ tool, arguments: args, meta }) => peer.call(tool, args, meta ?? undefined),
        // A broken connection may complain on its way out: the driver expects that.
        close: () => peer?.close().catch(() => {})
    };
    for await (const line of createInterface({ input: process.stdin })) {
        const command = JSON.parse(line);
        const answer = await operations[command.op](command).then(
            ok => ({ ok: ok ?? null }),
            error => ({ error: told(error) })
        );
        process.stdout.write(JSON.stringify(answer) + '\n');
    }
    process.exit(0);
}

function told(error) {
    const cause = error.cause ? `; ${told(error.cause)}` : '';
    return `${error.name}: ${error.message}${cause}`;
}
