// A client on the official TypeScript SDK, line 2.x.
//
// The endpoint's `mode` is the SDK's own: `auto` discovers and prefers the newest revision, `legacy` is the handshake.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { CALL_TIMEOUT, serve } from './agent.mjs';

await serve(async endpoint => {
    const client = new Client(
        { name: 'interop-typescript-2', version: '1.0.0' },
        { versionNegotiation: { mode: endpoint.mode, probe: { timeoutMs: CALL_TIMEOUT } } }
    );
    await client.connect(reach(endpoint), { timeout: CALL_TIMEOUT });
    return {
        server: () => ({ protocol: client.getNegotiatedProtocolVersion(), greeting: client.getDiscoverResult() ?? null }),
        listTools: () => client.listTools(undefined, { timeout: CALL_TIMEOUT }),
        call: (name, args, _meta) => client.callTool({ name, arguments: args, _meta }, { timeout: CALL_TIMEOUT }),
        close: () => client.close()
    };
});

function reach(endpoint) {
    if (endpoint.command) {
        const [command, ...args] = endpoint.command;
        return new StdioClientTransport({ command, args });
    }
    return new StreamableHTTPClientTransport(new URL(endpoint.url), { requestInit: { headers: endpoint.headers } });
}
